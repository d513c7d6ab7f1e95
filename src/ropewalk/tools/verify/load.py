"""Load the user's own function from `module:function`, in bounded time."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from types import FrameType
from typing import Any

from ropewalk.checks import did_you_mean, shown

GRACE = 5.0  # seconds after the limit until the process ends, if compiled code never returns


class TimeIsUp(BaseException):
    """The user's code took too long. Not an Exception, so that no code of the user catches it."""


def load_target(name: str) -> Callable[..., Any]:
    """Import `module:function`; the function may be an attribute, as in `module:Class.method`.

    Modules in the working directory can be imported. The module's code is executed. Raises
    ValueError if the name has another form, or nothing callable is there, or the module raises.
    """
    module_name, colon, path = name.partition(":")
    parts = [*module_name.split("."), *path.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError(
            f"TARGET must be module:function, as in my_model:apply_rope, got {shown(name)}"
        )
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ValueError(
                f"TARGET must name a module that can be imported from {shown(here)}, got "
                f"{shown(module_name)}"
            ) from None
        raise ValueError(f"TARGET's module {shown(module_name)} raised: {error}") from error
    except (Exception, SystemExit) as error:
        says = f"{type(error).__name__}: {shown(str(error), 160)}"
        raise ValueError(f"TARGET's module {shown(module_name)} raised {says}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            hint = did_you_mean(part, dir(found))
            raise ValueError(f"{shown(module_name)} has no {shown(part)}{hint}")
        found = getattr(found, part)
    if isinstance(found, type):
        found = _instance(found, name)
    if not callable(found):
        raise ValueError(f"TARGET must be callable, {shown(name)} is {shown(found)}")
    return found  # type: ignore[no-any-return]


def _instance(made: type, name: str) -> Any:
    try:
        return made()
    except Exception as error:
        raise ValueError(
            f"TARGET must be a function, or a class that needs no arguments, got {shown(name)}: "
            f"{shown(str(error), 160)}; write a function that makes and calls it"
        ) from error


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Run the user's code: its prints go to standard error, and it ends after a time limit.

    Raises ValueError when the time is up. If compiled code does not return even then, the process
    exits with status 2. Outside the main thread, and on systems without timers, there is no limit.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "setitimer"):
        with _to_standard_error():
            yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp

    said = f"TARGET must answer within {seconds:g} seconds, and it did not"
    last = threading.Timer(seconds + GRACE, _end, (said,))
    last.daemon = True
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    last.start()
    try:
        with _to_standard_error():
            yield
    except TimeIsUp:
        raise ValueError(said) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        last.cancel()


@contextmanager
def _to_standard_error() -> Iterator[None]:
    """Send what the user's code prints to standard error, also from C and from its children."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _end(said: str) -> None:
    print(f"ropewalk: {said}", file=sys.stderr, flush=True)
    os._exit(2)
