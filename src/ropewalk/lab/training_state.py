"""The state of a training as named tensors: the model's weights and what the optimizer stores."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.optim import Optimizer

from ropewalk.lab.checkpoint import load_weights, weights_of


def training_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return all tensors that a training resumes from, as `model.NAME` and `optimizer.NAME.KEY`."""
    tensors = {f"model.{k}": v for k, v in weights_of(model).items()}
    names = [name for name, _ in model.named_parameters()]
    for i, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{names[i]}.{k}": v for k, v in state.items()}
    return tensors


def restore_training(model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load tensors, named as in `training_tensors`. Raises ValueError if the weights differ."""
    held = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    load_weights(model, held)
    state = optimizer.state_dict()
    for i, (name, _) in enumerate(model.named_parameters()):
        prefix = f"optimizer.{name}."
        held = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        if held:
            state["state"][i] = held
    optimizer.load_state_dict(state)
