"""All tasks behind one interface; `open_task` returns the task of a config."""

from __future__ import annotations

from pathlib import Path

from ropewalk.lab.config import Config
from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS
from ropewalk.lab.tasks.base import Metric, Task
from ropewalk.lab.tasks.generated import Generated
from ropewalk.lab.tasks.text import CausalText, MaskedText
from ropewalk.lab.tasks.translation import Translation

#: A new task is one class and one line here, or one entry among the generated sequences.
CLASSES: dict[str, type[Task]] = {
    "translation": Translation,
    "masked-lm": MaskedText,
    "causal-lm": CausalText,
    **dict.fromkeys(SEQUENCE_TASKS, Generated),
}


def open_task(config: Config, run: Path) -> Task:
    """Return the config's task in its run folder."""
    return CLASSES[config.task](config, run)


__all__ = ["CLASSES", "Metric", "Task", "open_task"]
