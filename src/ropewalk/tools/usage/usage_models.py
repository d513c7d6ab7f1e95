"""Rotation in ropewalk's own models and in those of transformers, seen and replaced in a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor, nn

from ropewalk.encodings import AttentionEncoding, Placement
from ropewalk.encodings.rotary import RotarySite
from ropewalk.model import Attention, LanguageModel
from ropewalk.rotary.learned import LearnedRotaryEmbedding
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.tools.live_model import Part, preserved, replaced, rotating_parts
from ropewalk.tools.usage.head_usage import Rope

Role = Literal["q", "k"]

Visit = Callable[[int, Role, Tensor, Tensor], Tensor]
"""Called with a layer, "q" or "k", and vectors (B, H, S, D) before and after rotation; what it
returns takes the place of the rotated vectors."""


@contextmanager
def visiting_attention(model: nn.Module, visit: Visit) -> Iterator[None]:
    """Context in which `visit` sees the queries and keys of each `Attention` that runs."""
    attentions = [m for m in model.modules() if isinstance(m, Attention)]
    running = _Running()

    def visited(rotation: Callable[..., Any]) -> Callable[..., Any]:
        def rotate(q: Tensor, k: Tensor | None, at: Placement) -> tuple[Tensor, Tensor | None]:
            rotated_q, rotated_k = rotation(q, k, at)
            assert running.layer is not None
            rotated_q = visit(running.layer, "q", q, rotated_q)
            if k is not None and rotated_k is not None:
                rotated_k = visit(running.layer, "k", k, rotated_k)
            return rotated_q, rotated_k

        return rotate

    with ExitStack() as stack:
        for layer, attention in enumerate(attentions):
            enter = partial(running.enter, layer)
            stack.callback(attention.register_forward_pre_hook(enter).remove)
        for site in {attention.encoding for attention in attentions}:  # layers may share one
            part = Part(site, "rotate", site.rotate, makes_tables=False)
            stack.enter_context(replaced([(part, visited(site.rotate))]))
        yield


class OwnModel:
    """A `LanguageModel`: its ropes by layer, its rotation, its attention and its logits.

    Raises ValueError if it has no rope, or one without fixed frequencies.
    """

    has_logits = True

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.vocabulary = model.shape.vocabulary
        self.heads = model.shape.heads
        self.device = model.embedding.weight.device
        attentions = [m for m in model.modules() if isinstance(m, Attention)]
        if any(attention.linear is not None for attention in attentions):
            raise ValueError("model must have softmax attention, got linear attention")
        named = type(model.encoding).__name__
        ropes = [_rope_of(attention.encoding, named) for attention in attentions]
        self.ropes: tuple[Rope | None, ...] = tuple(ropes)
        self.layer_types: tuple[str | None, ...] = (None,) * len(ropes)
        self.causal = model.causal

    def visiting(self, visit: Visit) -> Any:
        """Return a context in which `visit` sees queries and keys."""
        return visiting_attention(self.model, visit)

    def maps(self, tokens: Tensor) -> list[Tensor | None]:
        """Return the attention probabilities `(B, H, S, S)` of each layer."""
        return list(self.model.attention_maps(tokens))

    def logits(self, tokens: Tensor) -> Tensor:
        """Return scores `(B, S, V)` of the next token."""
        return self.model.logits(self.model(tokens))

    output = logits


def _rope_of(site: AttentionEncoding, named: str) -> Rope:
    if not isinstance(site, RotarySite):
        raise ValueError(
            f"model must have a rope in its attention, got the encoding {named}, whose attention "
            f"has {type(site).__name__}"
        )
    if isinstance(site.rope, LearnedRotaryEmbedding):
        raise ValueError(
            f"model must have fixed frequencies, got learned ones in {named}; pairs could not be "
            f"compared between layers and heads"
        )
    return Rope(site.rope.spec, site.length)


KEY_FIRST = ("tensor", "sin", "cos")  # GPT-J and CodeGen rotate keys, then queries


class TransformersModel:
    """A causal language model of transformers: its ropes, its rotation, attention and logits.

    length: of the sequences that it will read, for rules that depend on it. Raises ValueError if
    the config has no rope for text.
    """

    def __init__(self, model: Any, length: int) -> None:
        self.model, self.length = model, length
        spec = ModelSpec.from_config(model.config)
        if not any(layer.rope for layer in spec.stacks.get("text", ())):
            raise ValueError(
                f"model must have a text stack with a rope, got {type(model).__name__}"
            )
        self.ropes: tuple[Rope | None, ...] = tuple(
            None if layer.rope is None else Rope(layer.rope, length) for layer in spec.layers
        )
        self.layer_types = tuple(layer.layer_type for layer in spec.layers)
        self.heads = int(getattr(model.config.get_text_config(), "num_attention_heads", 0) or 64)
        embeddings = model.get_input_embeddings()
        self.vocabulary = int(embeddings.num_embeddings)
        self.device: torch.device = embeddings.weight.device
        self._parameters = inspect.signature(type(model).forward).parameters

    @property
    def causal(self) -> bool:
        """Whether no output depends on later tokens, tried with another last token."""
        tokens = torch.zeros(1, self.length, dtype=torch.long, device=self.device)
        first = self.output(tokens)
        tokens[0, -1] = self.vocabulary - 1
        changed = (self.output(tokens) - first)[:, :-1].abs().max()
        return bool(changed <= 1e-4 * first.abs().max())

    @contextmanager
    def visiting(self, visit: Visit) -> Iterator[None]:
        """Context in which `visit` sees queries and keys. No other model may run meanwhile."""
        running = _Running()
        parts = [part for part in rotating_parts(self.model) if not part.makes_tables]
        with ExitStack() as stack:
            for number, layer in self._layers():
                hook = layer.register_forward_pre_hook(partial(running.enter, number))
                stack.callback(hook.remove)
            for name, module in self.model.named_modules():
                if "indexer" in name.rpartition(".")[2].lower():  # of sparse attention
                    before = module.register_forward_pre_hook(partial(running.pause, 1))
                    stack.callback(before.remove)
                    stack.callback(module.register_forward_hook(partial(running.pause, -1)).remove)
            stack.enter_context(replaced([(p, self._visited(p, visit, running)) for p in parts]))
            yield

    def maps(self, tokens: Tensor) -> list[Tensor | None]:
        """Return the attention probabilities `(B, H, S, S)` of each layer, None if not known."""
        with _eager(self.model):
            returned = getattr(self._run(tokens, output_attentions=True), "attentions", None) or ()
        shape = (len(tokens), self.length, self.length)
        layers = list(range(len(self.ropes)))
        if len(returned) != len(layers):
            layers = [layer for layer in layers if self.ropes[layer] is not None]
        maps: list[Tensor | None] = [None] * len(self.ropes)
        if len(returned) == len(layers):
            for layer, x in zip(layers, returned, strict=True):
                if isinstance(x, Tensor) and (x.ndim, *x.shape[:1], *x.shape[2:]) == (4, *shape):
                    maps[layer] = x
        return maps

    def logits(self, tokens: Tensor) -> Tensor:
        """Return scores `(B, S, V)` of the next token."""
        return torch.as_tensor(self._run(tokens).logits)

    @property
    def has_logits(self) -> bool:
        """Whether the model returns scores of tokens."""
        tokens = torch.zeros(1, self.length, dtype=torch.long, device=self.device)
        return isinstance(getattr(self._run(tokens), "logits", None), Tensor)

    def output(self, tokens: Tensor) -> Tensor:
        """Return logits, or the first output of a model without them."""
        returned = self._run(tokens)
        logits = getattr(returned, "logits", None)
        return torch.as_tensor(returned[0] if logits is None else logits)

    def _run(self, tokens: Tensor, **more: Any) -> Any:
        if "use_cache" in self._parameters:
            more["use_cache"] = False
        return self.model(input_ids=tokens, **more)

    def _layers(self) -> list[tuple[int, nn.Module]]:
        """Return the modules that may be layers of the text, with their numbers."""
        layers: list[tuple[int, nn.Module]] = []
        lists: list[str] = []
        for path, module in self.model.named_modules():
            inner = any(path.startswith(f"{outer}.") for outer in lists)  # such as experts
            if isinstance(module, nn.ModuleList) and len(module) >= len(self.ropes) and not inner:
                lists.append(path)
                layers += enumerate(module)
        return layers

    def _visited(self, part: Part, visit: Visit, running: _Running) -> Callable[..., Any]:
        """Return a function that rotates, whose results `visit` may replace."""
        function = part.function
        signature = inspect.signature(function)
        parameters = tuple(signature.parameters)

        @wraps(function)
        def visited(*args: Any, **kwargs: Any) -> Any:
            if running.busy or running.layer is None:
                return function(*args, **kwargs)
            given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
            before = [x.clone() for x in given]  # a function may rotate in place
            running.busy += 1
            try:
                returned = function(*args, **kwargs)
            finally:
                running.busy -= 1
            several = isinstance(returned, (tuple, list))
            outputs = list(returned) if several else [returned]
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            without_axis = parameters == KEY_FIRST or parameters[-1] == "freqs_cis"
            heads_at = bound.arguments.get("unsqueeze_dim", 2 if without_axis else 1)
            for place, after in enumerate(outputs):
                if not isinstance(after, Tensor) or after.ndim != 4:
                    continue
                at = next((i for i, x in enumerate(before) if x.shape == after.shape), None)
                if at is None:
                    continue
                role = running.next_role(parameters)
                swap = self._swaps(after, heads_at, running.layer)
                x, y = (z.transpose(1, 2) if swap else z for z in (before.pop(at), after))
                new = visit(running.layer, role, x, y)
                if new is not y:
                    outputs[place] = new.transpose(1, 2) if swap else new
            return tuple(outputs) if several else outputs[0]

        return visited

    def _swaps(self, x: Tensor, heads_at: Any, layer: int) -> bool:
        """Return whether x is (B, S, H, D), not (B, H, S, D)."""
        at = [axis for axis in (1, 2) if x.shape[axis] == self.length]
        if not at:
            raise ValueError(
                f"model must rotate vectors of all {self.length} tokens, got the shape "
                f"{tuple(x.shape)} in layer {layer}"
            )
        return heads_at == 2 if len(at) == 2 else at == [1]


class _Running:
    """Which layer runs, and how many tensors it has rotated."""

    def __init__(self) -> None:
        self.layer: int | None = None
        self.busy = 0  # inside a function that rotates, or an indexer
        self.rotated = 0

    def enter(self, layer: int, *_: Any) -> None:
        """Begin a layer, as a hook."""
        self.layer, self.rotated, self.busy = layer, 0, 0

    def pause(self, change: int, *_: Any) -> None:
        """Stop seeing rotations (1), or see them again (-1), as a hook."""
        self.busy += change

    def next_role(self, parameters: tuple[str, ...]) -> Role:
        """Return what the next tensor of a layer is."""
        self.rotated += 1
        roles: tuple[Role, ...] = ("k", "q") if parameters == KEY_FIRST else ("q", "k")
        if self.rotated > len(roles):
            raise ValueError(
                f"model must rotate queries and keys alone, got a third tensor in layer "
                f"{self.layer}"
            )
        return roles[self.rotated - 1]


@contextmanager
def _eager(model: nn.Module) -> Iterator[None]:
    """Context in which attention is computed by transformers' plain code.

    It is the only one that returns probabilities.
    """
    name = "_attn_implementation_internal"
    configs: dict[int, Any] = {}
    for module in model.modules():
        config = vars(module).get("config")
        subs = vars(config).values() if hasattr(config, "to_dict") else ()
        for part in (config, *subs):
            if hasattr(part, "to_dict") and name in vars(part):
                configs[id(part)] = part
    with ExitStack() as stack:
        for config in configs.values():
            stack.enter_context(mock.patch.dict(vars(config), {name: "eager"}))
        stack.enter_context(preserved(model))
        yield


def is_transformers(model: nn.Module) -> bool:
    """Return whether a model has a config, as models of transformers do."""
    return hasattr(getattr(model, "config", None), "to_dict") and hasattr(
        model, "get_input_embeddings"
    )
