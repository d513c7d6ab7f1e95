"""Progress of a running comparison: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ropewalk.lab.cells import Cell
from ropewalk.lab.running.events import Event

PLAIN_LINES = 5  # progress lines per training without a terminal


class Watcher:
    """Shows step, loss, speed and time left of each cell; `watch` and `stage` receive events.

    Events may come from several threads.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._tasks: dict[Cell, TaskID] = {}
        self._steps: dict[str, TaskID] = {}
        self._printed_part: dict[Cell | str, int] = {}
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
            console=console,
        )

    def __enter__(self) -> Watcher:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def stage(self, name: str) -> None:
        """Print the name of a step outside the cells."""
        self._console.print(name, highlight=False)

    def progress(self, name: str, done: int, total: int | None) -> None:
        """Show how much of a step outside the cells is done; `total` may not be known."""
        with self._lock:
            if self._console.is_terminal:
                if name not in self._steps:
                    self._steps[name] = self._bars.add_task(name, total=total, status="")
                status = f"{done:,} of {total:,}" if total else f"{done:,}" if done else ""
                self._bars.update(self._steps[name], completed=done, total=total, status=status)
            elif total and (part := done * PLAIN_LINES // total) != self._printed_part.get(name, 0):
                self._printed_part[name] = part
                self._console.print(f"{name}: {done:,} of {total:,}", highlight=False)

    def watch(self, cell: Cell, event: Event) -> None:
        """Show one event of a cell."""
        with self._lock:
            if "printed" in event:  # by an imported encoding; not part of the command's output
                print(f"{cell}: {event['printed']}", file=sys.stderr)
            elif "warning" in event:
                self._console.print(f"{cell}: warning: {event['warning']}", highlight=False)
            elif self._console.is_terminal:
                self._draw(cell, event)
            else:
                self._print(cell, event)

    def _draw(self, cell: Cell, event: Event) -> None:
        if cell not in self._tasks:
            self._tasks[cell] = self._bars.add_task(str(cell), total=None, status="")
        task = self._tasks[cell]
        if event.get("phase") == "training":
            self._bars.update(
                task, completed=event["step"], total=event["steps"], status=_status(event)
            )
        elif "phase" in event:
            whole = 1.0 if event["phase"] in ("finished", "already finished") else None
            self._bars.update(task, status=event["phase"], total=whole, completed=whole)

    def _print(self, cell: Cell, event: Event) -> None:
        if event.get("phase") == "training":
            part = event["step"] * PLAIN_LINES // event["steps"]
            if part == self._printed_part.get(cell, 0):
                return
            self._printed_part[cell] = part
            text = f"step {event['step']}/{event['steps']}, {_status(event)}"
        else:
            text = event.get("phase", "")
        if text:
            self._console.print(f"{cell}: {text}", highlight=False)


def _status(event: Event) -> str:
    return f"loss {event['loss']:.3f}, {event['tokens_per_s']:,.0f} tokens/s"
