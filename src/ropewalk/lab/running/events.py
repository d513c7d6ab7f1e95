"""Events of a cell, in the file `events.jsonl` of its folder: its progress, on any machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast
from uuid import uuid4

from ropewalk.files import open_now
from ropewalk.lab.cells import Cell


class Event(TypedDict, total=False):
    """What happens in a cell; the first event of a session says what began it and where.

    phase: what it does now, for people; in training with steps, seconds, loss and speed.
    ended: how it ended, if not as usual. printed: a line of an imported encoding.
    """

    attempt: str
    session: str
    host: str
    job: str
    pid: int
    started: str
    threads: int
    phase: str
    step: int
    steps: int
    seconds: float
    loss: float
    tokens_per_s: float
    ended: str
    warning: str
    error: str
    printed: str


#: Receives the events of one cell.
Emit = Callable[[Event], None]
#: Receives the events of several cells.
Watch = Callable[[Cell, Event], None]

EVENTS_FILE = "events.jsonl"
_MOST_AT_ONCE = 1 << 20  # bytes read in one look
_MOST_HEADER = 4096


@contextmanager
def event_writer(folder: Path, attempt: str, facts: Event) -> Iterator[Emit]:
    """Yield what appends the events of one session of a cell; an earlier session's are replaced.

    attempt: what the launcher calls this start of the cell. Appending raises OSError if the disk is
    full or gone.
    """
    path = folder / EVENTS_FILE
    path.unlink(missing_ok=True)  # a new file: readers notice it by the session in its header
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def emit(event: Event) -> None:
        line = f"{json.dumps(event)}\n".encode()
        while line:
            line = line[os.write(handle, line) :]

    try:
        emit({"attempt": attempt, "session": uuid4().hex, **facts})
        yield emit
    finally:
        os.close(handle)


@dataclass
class EventReader:
    """Reads new events of an attempt each time it is called; none before the attempt has begun."""

    folder: Path
    attempt: str
    _session: str = ""
    _offset: int = 0

    def __call__(self) -> list[Event]:
        try:
            with open_now(self.folder / EVENTS_FILE) as file:
                header = _parsed(file.readline(_MOST_HEADER))
                if header.get("attempt") != self.attempt:
                    return []
                if header.get("session") != self._session:  # started again, as after preemption
                    self._session, self._offset = str(header.get("session")), file.tell()
                file.seek(self._offset)
                content = file.read(_MOST_AT_ONCE)
        except OSError:  # it does not exist yet, or a shared folder is away for a while
            return []
        complete = content[: content.rfind(b"\n") + 1]  # the last line may still be written
        self._offset += len(complete)
        return [_parsed(line) for line in complete.splitlines()]


def read_session(folder: Path) -> list[Event]:
    """Return the header and the last events of the last session; an empty list if there is none."""
    try:
        with open_now(folder / EVENTS_FILE) as file:
            header = file.readline(_MOST_HEADER)
            size = os.fstat(file.fileno()).st_size
            file.seek(max(len(header), size - (1 << 16)))
            lines = file.read(1 << 16).splitlines()
    except OSError:
        return []
    return [_parsed(header), *(event for event in map(_parsed, lines) if event)]


def _parsed(line: bytes) -> Event:
    try:
        event = json.loads(line)
    except ValueError:  # cut off when its writer was killed
        return {}
    return cast(Event, event) if isinstance(event, dict) else {}
