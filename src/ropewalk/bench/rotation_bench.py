"""Measurement of rotations, from a plan to typed results.

A contender is timed only if it computes the right rotation, with its gradient. The reference is a
product of complex numbers in torch; it shares no code with ropewalk.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from ropewalk.bench.bench_options import Plan, using_threads
from ropewalk.bench.clock import Run, peak_call_memory, quartiles, time_rows
from ropewalk.bench.contenders import TRANSFORMERS, Absent, Contender, Rotation, kernel_serves
from ropewalk.bench.workloads import COPIES, GRADIENT, IN_PLACE, THETA, Case, copying
from ropewalk.files import Facts
from ropewalk.machine import conditions, load, versions
from ropewalk.rotary.kernels import cpu


def allowed(dtype: torch.dtype) -> float:
    """Return the worst error that still counts as the same rotation, relative to a pair's length.

    Angles in float32 are off by up to 2.4e-4 at position 4,096. A table in q's dtype, two products
    and a sum, each rounded, add up to four units of that dtype.
    """
    return 1e-3 + 4 * torch.finfo(dtype).eps


def worst_error(rotation: Rotation, case: Case) -> float:
    """Return the largest error of all pairs of q and k, or of gradients; inf if shapes differ.

    Raises ValueError if a rotation into new memory also writes into its arguments.
    """
    was = case.tensors(rotation.seq_dim)
    q, k = (x.clone() for x in was)
    errors = []
    if case.form == GRADIENT:
        upstream = case.tensors(rotation.seq_dim, seed=1)
        rotated, gradients = forward_backward(rotation, q, k, upstream)
        backwards = zip(gradients, upstream, strict=True)
        errors += [_error(y, x, rotation, case, sign=-1) for y, x in backwards]
    else:
        rotated = rotation.rotate(q, k)
    if case.form == IN_PLACE:
        rotated = q, k
    elif not all(torch.equal(x, before) for x, before in zip((q, k), was, strict=True)):
        raise ValueError("writes into q or k")
    errors += [_error(y, x, rotation, case) for y, x in zip(rotated, was, strict=True)]
    return max(errors)


def forward_backward(
    rotation: Rotation, q: Tensor, k: Tensor, upstream: tuple[Tensor, Tensor]
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, ...]]:
    """Return the rotation and the gradient of sum(rotated * upstream), without that sum."""
    leaves = q.detach().requires_grad_(), k.detach().requires_grad_()
    with torch.enable_grad():
        rotated = rotation.rotate(*leaves)
        return rotated, torch.autograd.grad(rotated, leaves, upstream)


def _error(found: Tensor, x: Tensor, rotation: Rotation, case: Case, sign: int = 1) -> float:
    if found.shape != x.shape or found.dtype != x.dtype:
        return float("inf")
    head_dim = case.workload.head_dim
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = sign * case.workload.positions().double()[:, None] * THETA**-exponents
    rotated = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)
    if rotation.seq_dim == -3:
        rotated = rotated[:, None]
    before, after = _pairs(x, rotation), _pairs(found, rotation)
    length = before.abs().clamp_min(torch.finfo(torch.float32).tiny)
    worst = float(((after - before * rotated).abs() / length).max())
    return float("inf") if math.isnan(worst) else worst


def _pairs(x: Tensor, rotation: Rotation) -> Tensor:
    """Return each pair as one complex number."""
    x = x.detach().cpu().float()
    if rotation.pairing == "half":
        return torch.complex(*x.chunk(2, dim=-1))
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


@dataclass(frozen=True)
class Untimed:
    """A contender that was not timed, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class TimedRow:
    """A row of a table: a contender, or the limit of them all, copying.

    seconds: the median of a call's. quartiles: the first and the third one. of_copy: the median as
    a multiple of the limit's. gb_per_s: bytes of q and k (and gradients), read and written once.
    times_transformers: how many times as fast, None if transformers is absent. peak_bytes: the most
    that a call uses beyond its arguments, None if it is not known.
    """

    name: str
    limit: bool
    package: str | None
    worst_error: float
    seconds: float
    quartiles: list[float]
    of_copy: float
    gb_per_s: float
    times_transformers: float | None
    peak_bytes: int | None
    rounds: int


@dataclass(frozen=True)
class TimedTable:
    """The rows of one workload, form and dtype; q and k are shapes (B, H, S, D)."""

    work: str
    form: str
    dtype: str
    q: list[int]
    k: list[int]
    first_position: int
    bytes_moved: int
    rows: list[TimedRow]
    refused: list[Untimed]

    @classmethod
    def read(cls, facts: Facts) -> TimedTable:
        """Return a table from its JSON."""
        rows = [TimedRow(**row) for row in facts["rows"]]
        return cls(
            **{**facts, "rows": rows, "refused": [Untimed(**row) for row in facts["refused"]]}
        )


@dataclass(frozen=True)
class RotationResults:
    """All tables of a measurement, with its conditions as JSON has them."""

    conditions: Facts
    tables: list[TimedTable]
    absent: list[Untimed]
    duration_s: float

    def as_json(self) -> Facts:
        """Return everything as plain JSON."""
        return {**self.conditions, **{k: v for k, v in asdict(self).items() if k != "conditions"}}


def measure(
    plan: Plan,
    command: Sequence[str] = (),
    watch: Callable[[Facts | TimedTable], None] = lambda part: None,
) -> RotationResults:
    """Measure everything in the plan; `watch` receives the conditions, then each table."""
    began = time.monotonic()
    packages = dict.fromkeys(contender.package for contender in plan.contenders)
    installed = [name for name in packages if name is not None and _is_installed(name)]
    facts: Facts = conditions(command, plan.threads, ["torch", *installed])
    facts["machine"]["device"] = device_name(plan.device)
    facts["kernel"] = kernel_serves(plan.device)
    facts["instructions"] = {
        "torch": torch.backends.cpu.get_cpu_capability().lower(),
        "ropewalk": cpu.INSTRUCTIONS,
    }
    watch(facts)
    tables: list[TimedTable] = []
    gone: dict[str, str] = {}
    with using_threads(plan.threads):
        for case in plan.cases():
            tables.append(_table(case, plan, gone))
            watch(tables[-1])
    absent = [Untimed(name, reason) for name, reason in gone.items()]
    facts["machine"]["load_after"] = load()
    return RotationResults(facts, tables, absent, round(time.monotonic() - began, 1))


def _table(case: Case, plan: Plan, gone: dict[str, str]) -> TimedTable:
    """Time copying and the contenders that compute the same; report why the others were refused.

    gone: contenders that were absent from an earlier table, with the reason. A failed import is not
    tried again, because it may have left half a module behind.
    """
    limit = COPIES.get(case.form, "clone")
    runs: dict[str, Run] = {limit: copying(case)}
    errors = {limit: 0.0}
    packages = {contender.name: contender.package for contender in plan.contenders}
    refused, most = [], allowed(case.dtype)
    for contender in plan.contenders:
        if contender.name in gone:
            continue
        try:
            rotation = contender.make(case)
            error = 0.0 if rotation is None else worst_error(rotation, case)
        except (ImportError, Absent) as reason:
            gone[contender.name] = _why_absent(contender, reason)
        except Exception as reason:  # another library's error concerns only its own row
            refused.append(Untimed(contender.name, error_line(reason)))
        else:
            if error > most:
                says = f"it computes another rotation, off by {error:.1g}, allowed {most:.1g}"
                refused.append(Untimed(contender.name, says))
            elif rotation is not None:
                errors[contender.name] = error
                runs[contender.name] = _rotating(rotation, case)
    with torch.set_grad_enabled(case.form == GRADIENT):
        samples = time_rows(runs, case.device, plan.rounds, plan.seconds)
        peaks = {name: peak_call_memory(run, case.device) for name, run in runs.items()}
    moved = case.workload.bytes_moved(case.form, case.dtype)
    times = {name: quartiles(values) for name, values in samples.items()}
    theirs = times[TRANSFORMERS][1] if TRANSFORMERS in times else None
    rows = [
        TimedRow(
            name,
            limit=name == limit,
            package=packages.get(name),
            worst_error=errors[name],
            seconds=middle,
            quartiles=[low, high],
            of_copy=middle / times[limit][1],
            gb_per_s=moved / middle / 1e9,
            times_transformers=None if theirs is None else theirs / middle,
            peak_bytes=peaks[name],
            rounds=len(samples[name]),
        )
        for name, (low, middle, high) in times.items()
    ]
    work = case.workload
    return TimedTable(
        work.name,
        case.form,
        str(case.dtype).removeprefix("torch."),
        q=list(work.q()),
        k=list(work.k()),
        first_position=work.first,
        bytes_moved=moved,
        rows=rows,
        refused=refused,
    )


def _rotating(rotation: Rotation, case: Case) -> Run:
    q, k = case.tensors(rotation.seq_dim)
    if case.form == IN_PLACE:
        q, k = q.clone(), k.clone()
    if case.form != GRADIENT:
        return lambda: rotation.rotate(q, k)
    upstream = case.tensors(rotation.seq_dim, seed=1)
    return lambda: forward_backward(rotation, q, k, upstream)


def _why_absent(contender: Contender, error: Exception) -> str:
    """Return why it is absent: not installed, or an import of its own fails."""
    if isinstance(error, Absent):
        return str(error)
    if contender.package is None or not _is_installed(contender.package):
        return "not installed"
    return f"cannot be imported: {error_line(error)}"


def _is_installed(package: str) -> bool:
    return versions([package])[package] != "unknown"


def device_name(device: torch.device) -> str:
    """Return the device, with the name of the GPU."""
    if device.type == "cuda":
        return f"{device}: {torch.cuda.get_device_name(device)}"
    return str(device)


def error_line(error: Exception, most: int = 160) -> str:
    """Return an error's type and its message, cut, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:most]}"
