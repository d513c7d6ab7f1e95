"""A measurement, from a plan to plain facts, as in its JSON file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from ropewalk.bench.contenders import Absent, Contender, Rotation, kernel_serves
from ropewalk.bench.copying import COPIES, copying
from ropewalk.bench.correctness import allowed, forward_backward, worst_error
from ropewalk.bench.peers import TRANSFORMERS
from ropewalk.bench.plan import Plan, using_threads
from ropewalk.bench.timing import Run, peak_call_memory, quartiles, time_rows
from ropewalk.bench.workloads import GRADIENT, IN_PLACE, Case
from ropewalk.files import Facts
from ropewalk.machine import conditions, load
from ropewalk.rotary.kernels import cpu


class Refused(Exception):  # noqa: N818 - it is a result
    """The reason why a contender is not timed."""


def measure(
    plan: Plan, command: Sequence[str] = (), watch: Callable[[Facts], None] = lambda facts: None
) -> Facts:
    """Measure everything in the plan; `watch` receives the conditions, then each table."""
    began = time.monotonic()
    packages = ["torch", *_installed(plan)]
    results: Facts = conditions(command, plan.threads, packages)
    results["machine"]["device"] = device_name(plan.device)
    results["kernel"] = kernel_serves(plan.device)
    results["instructions"] = {
        "torch": torch.backends.cpu.get_cpu_capability().lower(),
        "ropewalk": cpu.INSTRUCTIONS,
    }
    watch(results)
    results["tables"] = []
    gone: dict[str, str] = {}
    with using_threads(plan.threads):
        for case in plan.cases():
            results["tables"].append(_table(case, plan, gone))
            watch(results["tables"][-1])
    results["absent"] = [{"name": name, "reason": reason} for name, reason in gone.items()]
    results["machine"]["load_after"] = load()
    results["duration_s"] = round(time.monotonic() - began, 1)
    return results


def write_results(path: Path, results: Facts) -> None:
    """Write the facts as JSON."""
    text = json.dumps(results, ensure_ascii=False, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def _table(case: Case, plan: Plan, gone: dict[str, str]) -> Facts:
    """Time copying and the contenders that compute the same; report why the others were refused.

    gone: contenders that were absent from an earlier table, with the reason. A failed import is not
    tried again, because it may have left half a module behind.
    """
    limit = COPIES.get(case.form, "clone")
    runs: dict[str, Run] = {limit: copying(case)}
    facts: dict[str, Facts] = {limit: {"limit": True, "package": None, "worst_error": 0.0}}
    refused = []
    for contender in plan.contenders:
        if contender.name in gone:
            continue
        try:
            admitted = _admit(contender, case)
        except (ImportError, Absent) as reason:
            gone[contender.name] = _why_absent(contender, reason)
        except Exception as reason:  # another library's error concerns only its own row
            refused.append({"name": contender.name, "reason": _line(reason)})
        else:
            if admitted is not None:
                rotation, error = admitted
                runs[contender.name] = _rotating(rotation, case)
                facts[contender.name] = {
                    "limit": False,
                    "package": contender.package,
                    "worst_error": error,
                }
    with torch.set_grad_enabled(case.form == GRADIENT):
        samples = time_rows(runs, case.device, plan.rounds, plan.seconds)
        peaks = {name: peak_call_memory(run, case.device) for name, run in runs.items()}
    return {
        "work": case.workload.name,
        "form": case.form,
        "dtype": str(case.dtype).removeprefix("torch."),
        "q": list(case.workload.q()),
        "k": list(case.workload.k()),
        "first_position": case.workload.first,
        "bytes_moved": case.workload.bytes_moved(case.form, case.dtype),
        "rows": _rows(case, facts, samples, peaks),
        "refused": refused,
    }


def _admit(contender: Contender, case: Case) -> tuple[Rotation, float] | None:
    """Return its rotation and worst error, None if it has no such form; Refused if it is wrong."""
    rotation = contender.make(case)
    if rotation is None:
        return None
    error, most = worst_error(rotation, case), allowed(case.dtype)
    if error > most:
        raise Refused(f"it computes another rotation, off by {error:.1g}, allowed {most:.1g}")
    return rotation, error


def _rows(
    case: Case,
    facts: dict[str, Facts],
    samples: dict[str, list[float]],
    peaks: dict[str, int | None],
) -> list[Facts]:
    moved = case.workload.bytes_moved(case.form, case.dtype)
    times = {name: quartiles(values) for name, values in samples.items()}
    limit = next(times[name][1] for name, fact in facts.items() if fact["limit"])
    theirs = times[TRANSFORMERS][1] if TRANSFORMERS in times else None
    return [
        {
            "name": name,
            **facts[name],
            "seconds": middle,
            "quartiles": [low, high],
            "of_copy": middle / limit,
            "gb_per_s": moved / middle / 1e9,
            "times_transformers": None if theirs is None else theirs / middle,
            "peak_bytes": peaks[name],
            "rounds": len(samples[name]),
        }
        for name, (low, middle, high) in times.items()
    ]


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
    return f"cannot be imported: {_line(error)}"


def _installed(plan: Plan) -> list[str]:
    packages = dict.fromkeys(contender.package for contender in plan.contenders)
    return [name for name in packages if name is not None and _is_installed(name)]


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def device_name(device: torch.device) -> str:
    """Return the device, with the name of the GPU."""
    if device.type == "cuda":
        return f"{device}: {torch.cuda.get_device_name(device)}"
    return str(device)


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())[:160]
    return text if isinstance(error, Refused) else f"{type(error).__name__}: {text}"
