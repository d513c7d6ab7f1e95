"""Call a model on tokens at chosen positions, and find its stack of text."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.checks import shown
from ropewalk.tools.verify.capture import Attended, Recorder, capture
from ropewalk.tools.verify.hollow import Shape, hollow

TOKENS = ("input_ids", "decoder_input_ids", "tokens", "token_ids", "ids", "idx", "inputs", "input")
POSITIONS = (
    "position_ids",
    "decoder_position_ids",
    "positions",
    "input_pos",
    "pos_ids",
    "position",
)
CONTIGUOUS = 257  # positions of a model that takes none


class ModelError(ValueError):
    """The model's own code raised."""


@dataclass(frozen=True)
class Driver:
    """A stack, and the names of its arguments for tokens and positions."""

    stack: nn.Module
    tokens: str
    positions: str | None
    others: dict[str, Any]

    def run(self, shape: Shape, positions: Tensor, seen: Callable[[Attended], None]) -> None:
        """Run the stack on `shape.rows` rows at positions (S,) or (A, S).

        The stack stays in eval mode; see `preserved`. Raises ModelError if the model's code raises,
        and what `seen` raises as it is.
        """
        device = _device(self.stack)
        S = shape.positions = positions.shape[-1]
        ids = torch.ones(shape.rows, S, dtype=torch.long, device=device)
        given = {self.tokens: ids, **self.others}
        if self.positions is not None:
            given[self.positions] = (
                positions.to(device).unsqueeze(-2).expand(*positions.shape[:-1], shape.rows, S)
            )
        self.stack.eval()
        recorder = Recorder(seen, shape)
        try:
            with torch.no_grad(), hollow(self.stack, shape), capture(self.stack, recorder):
                self.stack(**given)
        except Exception as error:
            if recorder.error is not None:
                raise recorder.error from None
            says = " ".join(str(error).split()) or "no message"
            raise ModelError(f"{type(error).__name__}: {shown(says, 160)}") from error
        if recorder.error is not None:
            raise recorder.error


def takes_tokens(target: nn.Module) -> bool:
    """Return whether a module is a model that takes tokens, not a rotation of vectors."""
    parameters = inspect.signature(_text_stack(target).forward).parameters
    names = [name for name in TOKENS if name in parameters]
    embeds = any(isinstance(module, nn.Embedding) for module in target.modules())
    return bool(names) and (embeds or hasattr(target, "get_input_embeddings"))


def text_driver(model: nn.Module) -> Driver:
    """Return how a model's text stack is called. Raises ValueError if it takes no tokens."""
    stack = _text_stack(model)
    parameters = inspect.signature(stack.forward).parameters
    tokens = next((name for name in TOKENS if name in parameters), None)
    if tokens is None:
        raise ValueError(
            f"model must have a forward that takes {', '.join(TOKENS[:3])} or similar, got "
            f"{type(stack).__name__} with {', '.join(parameters)}"
        )
    positions = next((name for name in POSITIONS if name in parameters), None)
    others: dict[str, Any] = {}
    if "use_cache" in parameters:
        others["use_cache"] = False
    return Driver(stack, tokens, positions, others)


def _text_stack(model: nn.Module) -> nn.Module:
    """Return the module whose config is that of the text, or the model itself."""
    config = getattr(model, "config", None)
    if not hasattr(config, "get_text_config"):
        return model
    wanted = config.get_text_config()  # type: ignore[union-attr]
    found = model
    for module in model.modules():
        if getattr(module, "config", None) is not wanted:
            continue
        has_layers = any(isinstance(child, nn.ModuleList) for child in module.modules())
        parameters = inspect.signature(module.forward).parameters
        if has_layers and any(name in parameters for name in TOKENS):
            found = module
    return found


def _device(model: nn.Module) -> torch.device:
    """Return where the model runs: the device of its buffers, which the ropes need."""
    tensors = [*model.buffers(), *model.parameters()]
    return next((t.device for t in tensors if not t.is_meta), torch.device("cpu"))
