"""Launchers by name, and the arguments of `--launcher-args`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk.checks import check_word, did_you_mean, needing, shown
from ropewalk.encodings.parsing import split_at
from ropewalk.lab.config_sources import read_value
from ropewalk.lab.running.launcher import Launcher, LocalLauncher


@dataclass(frozen=True)
class Argument:
    """An argument of a launcher: its type, its smallest value, and what it means."""

    kind: type
    meaning: str
    least: float = 0
    words: tuple[str, ...] = ()

    def read(self, name: str, text: str) -> Any:
        """Return the value in a text. Raises ValueError, naming the argument."""
        value: Any = text
        rule, is_right = " or ".join(self.words), not self.words or text in self.words
        if self.kind is not str:
            value, whole = read_value(text), self.kind is int
            rule = f"a {'whole ' * whole}number of at least {self.least:g}"
            is_number = isinstance(value, int if whole else (int, float))
            is_right = is_number and not isinstance(value, bool) and value >= self.least
        if not is_right:
            raise ValueError(f"--launcher-args {name} must be {rule}, got {shown(value)}")
        return self.kind(value)


SLURM = {
    "partition": Argument(str, "the partition"),
    "account": Argument(str, "the account that pays"),
    "qos": Argument(str, "the quality of service"),
    "constraint": Argument(str, "features that the node must have"),
    "gpus": Argument(int, "GPUs of a cell", 0),
    "cpus": Argument(int, "cores of a cell; by default its threads", 1),
    "memory_gb": Argument(float, "memory of a cell", 0.1),
    # A job is asked to save 90 seconds before its limit.
    "minutes": Argument(int, "time limit of a job; a cell that reaches it is queued again", 5),
    "cluster": Argument(
        str, "slurm, or local: processes of this machine", words=("slurm", "local")
    ),
}
RAY = {
    "address": Argument(str, "of a running cluster; by default RAY_ADDRESS, or a new one here"),
    "gpus": Argument(float, "GPUs of a cell; 0.5 lets two cells share one", 0.0),
    "cpus": Argument(float, "cores of a cell; by default its threads", 0.1),
    "retries": Argument(int, "how often a cell starts again after its machine died", 0),
}
LAUNCHERS: dict[str, Mapping[str, Argument]] = {"local": {}, "slurm": SLURM, "ray": RAY}


def make_launcher(name: str, texts: str | None, run: Path) -> Launcher:
    """Return the launcher of this name. Raises ValueError if it cannot be used here.

    texts: `name=value,…`, as the user typed it.
    """
    check_word("--launcher", name, LAUNCHERS)
    arguments = read_arguments(texts, name, LAUNCHERS[name])
    if name == "local":
        return LocalLauncher()
    with needing(f"--launcher {name}"):
        if name == "slurm":
            from ropewalk.lab.running.on_slurm import SlurmLauncher

            return SlurmLauncher(run, arguments)
        from ropewalk.lab.running.on_ray import RayLauncher

        return RayLauncher(arguments)


def read_arguments(
    texts: str | None, launcher: str, known: Mapping[str, Argument]
) -> dict[str, Any]:
    """Return the arguments in `name=value,…`."""
    found: dict[str, Any] = {}
    for text in split_at(texts, ",") if texts else ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            raise ValueError(f"--launcher-args must read name=value,…, got {shown(texts)}")
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no arguments"
            hint = did_you_mean(name, tuple(known))
            raise ValueError(
                f"--launcher-args: the launcher {launcher} {takes}, got {shown(name)}{hint}"
            )
        if name in found:
            raise ValueError(f"--launcher-args must name {name} once, got {shown(texts)}")
        found[name] = known[name].read(name, value)
    return found
