"""Who works in a cell's folder, on any machine that shares it.

A lock of the operating system (`ropewalk.files`) frees a folder at once when a process of this
machine ends. It says nothing about other machines, and some file systems have no locks, so the
owner also writes a lease, `owner.json`, and touches it every few seconds. Clocks of machines
differ, so no time in the file is compared with a clock: another process watches whether the lease
changes, and takes over one that stayed the same for `LEASE` seconds of its own clock.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from ropewalk.files import Busy, is_alive, is_locked, locked, machine_name, open_now
from ropewalk.lab.stopping import BUSY

RENEWED_EVERY = 10.0  # seconds
LEASE = 60.0  # seconds without a change, after which an owner on another machine counts as dead
LOOKS_EVERY = 1.0  # seconds between two looks at another machine's lease
_MOST_BYTES = 4096


@dataclass(frozen=True)
class Owner:
    """The process that works in a folder.

    machine: changes when the machine restarts. host, pid, job: for people. started: in UTC.
    """

    token: str
    machine: str
    host: str
    pid: int
    job: str
    started: str


@dataclass(frozen=True)
class Lease:
    """The content of a lease, and when it was renewed on the file system's clock."""

    owner: Owner
    renewed_ns: int

    def mark(self) -> str:
        """Return text that changes whenever the lease does."""
        return f"{self.owner.token}:{self.renewed_ns}"


def this_machine() -> str:
    """Return an identifier of this machine that changes at each start."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return machine_name()


def read_lease(folder: Path) -> Lease | None:
    """Return the lease on a folder, or None. One that cannot be read has an unknown owner."""
    path = folder / "owner.json"
    try:
        with open_now(path) as file:  # opening it makes NFS ask the server
            renewed = os.fstat(file.fileno()).st_mtime_ns
            content = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Lease(Owner("", "", error.strerror or "unknown", 0, "", ""), 0)
    return Lease(_owner_in(content), renewed)


def _owner_in(content: bytes) -> Owner:
    """Return the owner that a lease names; an unknown one if it is being written, or damaged."""
    try:
        return Owner(**json.loads(content))
    except (ValueError, TypeError):
        return Owner("", "", "unknown", 0, "", "")


def has_ended(owner: Owner, is_held: bool | None) -> bool:
    """Return whether an owner is known to have ended: it was here, and its lock is free.

    is_held: whether the folder is locked; None if its file system has no locks.
    """
    if owner.machine != this_machine():
        return False
    return is_held is False or not is_alive(owner.pid)


class Sightings:
    """Leases as this process has seen them; it tells living owners from dead ones."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[str, float]] = {}

    def is_held(self, folder: Path) -> bool:
        """Return whether a process works in a folder, as far as this one has seen."""
        lease, is_held = read_lease(folder), is_locked(folder)
        if is_held:
            return True
        if lease is None or has_ended(lease.owner, is_held):
            return False
        mark, now = lease.mark(), time.monotonic()
        if self._seen.get(folder, ("", 0.0))[0] != mark:
            self._seen[folder] = (mark, now)
        return now - self._seen[folder][1] < LEASE

    def mark(self, folder: Path) -> str:
        """Return the mark of the lease that was last seen, or ""; call it if `is_held` is false."""
        return self._seen.get(folder, ("", 0.0))[0]


@contextmanager
def owned(folder: Path, *, job: str = "", dead: str = "") -> Iterator[Owner]:
    """Own a folder, creating it if needed; leave the lease behind only if the process is killed.

    job: what people should know about the process, such as its number in a queue.
    dead: the mark of a lease whose owner is known to be dead.

    Raises `Busy` if another process works in it. A lease of another machine is watched for up to
    `LEASE` seconds first. If another process takes over, this one ends at once with status `BUSY`.
    """
    with locked(folder):
        _end_dead_lease(folder, dead)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        owner = Owner(uuid4().hex, this_machine(), machine_name(), os.getpid(), job, started)
        _write(folder, owner)
        released = threading.Event()
        threading.Thread(target=_renew, args=(folder, owner, released), daemon=True).start()
        try:
            yield owner
        finally:
            released.set()
            lease = read_lease(folder)
            if lease is not None and lease.owner.token == owner.token:
                with suppress(OSError):
                    (folder / "owner.json").unlink()


def _end_dead_lease(folder: Path, dead: str) -> None:
    """Remove the lease of a dead owner. Raises `Busy` if the owner lives."""
    lease = read_lease(folder)
    if lease is None:
        return
    # This process has the lock, if the file system has locks.
    is_held = None if is_locked(folder) is None else False
    if not has_ended(lease.owner, is_held) and lease.mark() != dead:
        _watch(folder, lease)
    _take_over(folder, lease)


def _take_over(folder: Path, dead: Lease) -> None:
    """Remove this lease. Raises `Busy` if another process that saw the same was faster."""
    aside = folder / f".owner.{uuid4().hex}"
    try:
        (folder / "owner.json").rename(aside)  # has one winner
    except FileNotFoundError:
        raise Busy(f"another process took over {folder}") from None
    with open_now(aside) as file:
        moved = _owner_in(file.read(_MOST_BYTES))
    if moved.token != dead.owner.token:
        with suppress(OSError):  # the winner's lease: put it back
            os.link(aside, folder / "owner.json")
    aside.unlink(missing_ok=True)
    if moved.token != dead.owner.token:
        raise Busy(f"another process took over {folder}")


def _watch(folder: Path, lease: Lease) -> None:
    """Wait until a lease has stayed the same for `LEASE` seconds. Raises `Busy` if it changes."""
    until = time.monotonic() + LEASE
    while time.monotonic() < until:
        time.sleep(min(LOOKS_EVERY, LEASE / 4))
        now = read_lease(folder)
        if now is None or now.mark() != lease.mark():
            raise Busy(f"a process on {lease.owner.host} uses {folder}")


def _write(folder: Path, owner: Owner) -> None:
    path = folder / "owner.json"
    try:
        with path.open("x", encoding="utf-8") as file:  # atomic on NFS too
            file.write(json.dumps(asdict(owner)))
    except FileExistsError:
        raise Busy(f"another process took over {folder}") from None
    except OSError as error:  # such as a full disk
        path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def _renew(folder: Path, owner: Owner, released: threading.Event) -> None:
    """Touch the lease until it is released; end this process if it is lost."""
    renewed = time.monotonic()
    while not released.wait(min(RENEWED_EVERY, LEASE / 6)):
        try:
            lease = read_lease(folder)
            if lease is not None and lease.owner.token == owner.token:
                os.utime(folder / "owner.json")
                renewed = time.monotonic()
                continue
            lost = lease is None or lease.owner.token != ""
        except OSError:
            lost = False  # the disk may come back in time
        if released.is_set():
            return
        if lost or time.monotonic() - renewed > LEASE - RENEWED_EVERY:
            print(f"{folder}: another process may own it now; this one ends", file=sys.stderr)
            sys.stderr.flush()
            os._exit(BUSY)
