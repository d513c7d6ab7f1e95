"""Devices and capabilities of the machine, and the conditions of a measurement."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ropewalk.checks import shown


def pick_device(name: str) -> torch.device:
    """Return the device of this name; `auto` is a GPU if there is one, else the CPU.

    torch knows more names, of devices that compute nothing or that this package does not support.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name in devices():
        return torch.device(name)
    raise ValueError(
        f"device must be one that this machine has, auto, {', '.join(devices())}, got {shown(name)}"
    )


def devices() -> list[str]:
    """Return the names of this machine's devices."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cuda = ["cuda", *(f"cuda:{i}" for i in range(count))] if count else []
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]


def pick_precision(name: str, device: torch.device) -> str:
    """Return the precision of products; `auto` is bfloat16 if the hardware multiplies it."""
    if name != "auto":
        return name
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    # On a CPU without these instructions bfloat16 is emulated and slower than float32.
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    on_cpu = device.type == "cpu" and any(getattr(torch.cpu, check, bool)() for check in checks)
    return "bfloat16" if on_cpu else "float32"


def peak_memory(device: torch.device) -> int:
    """Return this process's peak memory in bytes: of the GPU, or resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # On Linux, ru_maxrss begins at the memory of the process that started this one.
    if peak := _stated("/proc/self/status", "VmHWM"):
        return int(peak.split()[0]) * 1024
    import resource  # Windows has none

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory(device: torch.device) -> int | None:
    """Return the total bytes of the device's memory, or None if it is not known."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has neither
        return None


def available_memory(device: torch.device) -> int | None:
    """Return the bytes of the device's memory that are free, or None if it is not known.

    Limits of containers are not read.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if free := _stated("/proc/meminfo", "MemAvailable"):
        return int(free.split()[0]) * 1024
    return memory(device)


def _stated(path: str, name: str) -> str | None:
    """Return what a file of Linux states under a name; None on other systems."""
    with suppress(OSError):
        for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    return None


def check_fits(
    needed: float,
    device: torch.device,
    *,
    rule: str,
    what: str,
    ways: Mapping[str, float] | None = None,
    of_total: bool = False,
) -> None:
    """Raise ValueError if more bytes are needed than the device has free, or has in total.

    rule: what must hold, such as "--model must fit into memory".
    what: what needs the bytes, as a subject with its verb, such as "its weights need".
    ways: ways out, with the bytes that each would need; the first that fits is named.
    """
    limit = memory(device) if of_total else available_memory(device)
    if limit is None or needed <= limit:
        return
    way = next((way for way, less in (ways or {}).items() if less <= limit), None)
    raise ValueError(
        f"{rule}: {what} {needed / 2**30:,.1f} GiB, "
        f"{device} has {limit / 2**30:,.1f} GiB{'' if of_total else ' free'}"
        f"{'' if way is None else f'; try {way}'}"
    )


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """Return the name of the processor."""
    return _stated("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def commit() -> str | None:
    """Return the commit of the source tree that this runs from, with a + if it was changed."""

    def git(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        package = str(Path(__file__).parent)
        # A folder around the package may be anyone's repository, and name programs in its config.
        safe = ["--no-optional-locks", "-c", "core.fsmonitor=false"]
        command = ["git", *safe, "-C", package, *words]
        return subprocess.run(command, capture_output=True, text=True, check=check)

    try:
        head = git("rev-parse", "HEAD").stdout.strip()
        git("ls-files", "--error-unmatch", __file__)
        changed = git("diff", "--quiet", "HEAD", "--", ".", check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed else "")


def versions(
    packages: Sequence[str] = ("torch", "tokenizers", "sacrebleu", "numpy"),
) -> dict[str, str]:
    """Return the versions of the packages that numbers depend on."""
    return {"python": platform.python_version(), **{name: _version(name) for name in packages}}


def load() -> float | None:
    """Return the processes that needed a core in the last minute, or None if not counted."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def conditions(
    command: Sequence[str], threads: int, packages: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the conditions of a measurement; call it before the run, for the time and load."""
    return {
        "ropewalk": _version("ropewalk"),
        "commit": commit(),
        "command": shlex.join(command),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions() if packages is None else versions(packages),
        "machine": {
            "processor": processor(),
            "system": platform.system(),
            "threads": threads,
            "load_before": load(),
        },
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
