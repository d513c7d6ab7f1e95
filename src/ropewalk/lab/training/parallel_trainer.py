"""Training of one cell by several processes; each step has the batch that one process would have.

Each process takes every n-th row of each batch. The loss of a row counts by the target tokens of
the complete step, so losses and gradients equal those of one process, except for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import all_reduce
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from ropewalk.lab.loss import autocast
from ropewalk.lab.models import Model
from ropewalk.lab.tasks.base import Task
from ropewalk.lab.tensors import weights_of
from ropewalk.lab.training.checkpoints import save_together
from ropewalk.lab.training.process_group import is_orphan
from ropewalk.lab.training.trainer import Trainer


class _Loss(nn.Module):
    """The loss of a batch as a module: DDP and FSDP see each use of a parameter in its forward."""

    def __init__(self, task: Task, model: Model, device: torch.device, precision: str) -> None:
        super().__init__()
        self.model = model
        self.task, self.device, self.precision = task, device, precision

    def forward(self, batch: Any) -> Tensor:
        with autocast(self.device, self.precision):
            return self.task.loss(self.model, batch)


class ParallelTrainer(Trainer):
    """Trains one model in all processes of a group; the first one writes snapshots.

    With `parallel=ddp`, each process has a copy of the model and gradients are averaged. With
    `parallel=fsdp`, each has a part of every parameter, of its gradient and of Adam's means.
    """

    def _place(self, model: Model) -> Model:
        loss = _Loss(self.task, model, self.device, self.precision)
        if self.config.parallel == "fsdp":
            self.parallel = _in_parts(loss)
        else:
            loss.to(self.device)
            gpu = [torch.cuda.current_device()] if self.device.type == "cuda" else None
            some_unused = self._some_are_unused(loss)
            self.parallel = DistributedDataParallel(loss, gpu, find_unused_parameters=some_unused)
        if self.config.compile:
            model.compile()
        return model

    def _some_are_unused(self, loss: _Loss) -> bool:
        """Return whether the loss does not depend on some parameters, by one row's gradients."""
        row = self.task.plan(self.seed, 0)[0][:1]
        loss(self.task.batch(row, 0).to(self.device)).backward()
        found = any(p.requires_grad and p.grad is None for p in loss.parameters())
        loss.zero_grad()
        return found

    def _add_gradients(self, batches: Sequence[Any], tokens: int) -> float:
        rank, world = self.group.rank, self.group.world
        # Other dropout masks in each process; the first continues the generator of a single one.
        torch.manual_seed((torch.initial_seed() + (rank << 52)) % 2**63)
        total = 0.0
        for i, batch in enumerate(batches):
            own, counted = _part_of(batch, rank, world)
            share = counted / tokens
            with self._exchanging(last=i == len(batches) - 1):
                loss = self.parallel(own.to(self.device))
                # The exchange of gradients divides their sum by the number of processes.
                (loss * (share * world)).backward()
            total += float(loss.detach()) * share
        if isinstance(self.parallel, FSDPModule):
            for parameter in self.parallel.parameters():
                # FSDP cannot divide a single number: each process has it whole.
                if parameter.ndim == 0 and parameter.grad is not None:
                    all_reduce(parameter.grad.div_(world))
        return self.group.sum(total)[0]

    def _exchanging(self, *, last: bool) -> AbstractContextManager[None]:
        """Exchange gradients between processes only after the last batch of a step."""
        if isinstance(self.parallel, FSDPModule):
            self.parallel.set_requires_gradient_sync(last)
            return nullcontext()
        assert isinstance(self.parallel, DistributedDataParallel)
        return nullcontext() if last else self.parallel.no_sync()

    def _clip_gradients(self) -> float:
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        return float(_whole(norm))

    def _agree(self, stop: bool, save: bool) -> tuple[bool, bool]:
        stops, saves = self.group.sum(stop or is_orphan(), save)
        return stops > 0, saves > 0

    def _validation_loss(self) -> float:
        parts = self.parallel if isinstance(self.parallel, FSDPModule) else None
        if parts is not None:
            parts.unshard()  # what is outside of the layers; each layer gathers its own
        loss = super()._validation_loss()
        if parts is not None:
            parts.reshard()
        return self.group.broadcast(loss)

    def _take_snapshot(self, weights: dict[str, Tensor], loss: float) -> None:
        whole = {}
        for name, tensor in weights.items():
            gathered = _whole(tensor.detach())
            if self.group.is_first:
                whole[name] = gathered.cpu()
        if self.group.is_first:
            super()._take_snapshot(whole, loss)
        self.group.wait()

    def _write_checkpoint(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        save_together(self.group, self.folder, self.record.step, tensors, facts)

    def _own(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parts of complete tensors that this process has."""
        parts = {f"model.{name}": tensor for name, tensor in weights_of(self.model).items()}
        for name, parameter in self.model.named_parameters():
            for key in ("exp_avg", "exp_avg_sq"):
                parts[f"optimizer.{name}.{key}"] = parameter
        return {name: _like(tensor, parts.get(name)) for name, tensor in tensors.items()}


def _in_parts(loss: _Loss) -> nn.Module:
    """Shard each layer, then the rest: tables of tokens, and encodings, which layers may share."""
    kind = "cuda" if loss.device.type == "cuda" else "cpu"
    mesh = init_device_mesh(kind, (torch.distributed.get_world_size(),))
    model, shared = loss.model, set()
    numbers = {p for p in model.parameters() if p.ndim == 0}
    for number in numbers:
        number.data = number.data.to(loss.device)
    for name, child in model.named_children():
        if name.endswith("encoding"):
            shared |= set(child.parameters())
    for name, child in model.named_children():
        for layer in child if isinstance(child, nn.ModuleList) and "encoding" not in name else ():
            fully_shard(layer, mesh=mesh, ignored_params=shared | numbers)
    fully_shard(loss, mesh=mesh, ignored_params=numbers)
    return loss


def _part_of(batch: Any, rank: int, world: int) -> tuple[Any, int]:
    """Return this process's rows of a batch and the number of their target tokens.

    If there are fewer rows than processes, some get the first row, with weight 0.
    """
    found = {each.name: getattr(batch, each.name) for each in fields(batch)}
    count = len(next(iter(found.values())))
    rows = slice(rank, None, world) if rank < count else slice(0, 1)
    part = replace(batch, **{name: tensor[rows] for name, tensor in found.items()})
    return part, part.target_tokens if rank < count else 0


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _like(tensor: Tensor, part: Tensor | None) -> Tensor:
    if not isinstance(part, DTensor):
        return tensor
    return distribute_tensor(tensor.to(part.device), part.device_mesh, part.placements)
