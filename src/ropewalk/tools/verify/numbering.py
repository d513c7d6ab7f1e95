"""Which of a model's lists of modules is that of its layers."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from ropewalk.tools.verify.capture import Attended


@dataclass
class Numbering:
    """Numbers the layers of a model: the places in one list of it, from a first, short run.

    lists: the path of each list, and how many modules it has. met: which of them reach attention.
    """

    lists: dict[str, int]
    met: dict[str, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: nn.Module) -> Numbering:
        """Return the lists of a model."""
        kinds = (nn.ModuleList, nn.Sequential)
        found = {path: m for path, m in model.named_modules() if isinstance(m, kinds)}
        return cls({path: len(module) for path, module in found.items()})

    def see(self, attended: Attended) -> None:
        """Remember the layers in which an attention is."""
        for path in self.lists:
            number = number_in(path, attended)
            if number is not None:
                self.met.setdefault(path, set()).add(number)

    def chosen(self, count: int) -> str | None:
        """Return the path of the list of `count` layers, or of the list that comes nearest.

        It is the list with the most layers that reach attention: by name alone, a list of experts
        or of stages may have as many modules. Of two such lists, the first that ran is taken.
        """
        if not self.met:
            return None
        return max(self.met, key=lambda path: (self.lists[path] == count, len(self.met[path])))


def number_in(path: str | None, attended: Attended) -> int | None:
    """Return the place of an attention in a list, or None if it is elsewhere."""
    if path is None:
        return None
    start = f"{path}." if path else ""
    for each in attended.paths:
        number = each.removeprefix(start).partition(".")[0]
        if each.startswith(start) and number.isdigit():
            return int(number)
    return None
