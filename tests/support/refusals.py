"""Calls that must be refused, each with a part of the message; one test lists all offenders."""

from __future__ import annotations

from collections.abc import Callable


def check_refused(
    error: type[Exception], *calls: tuple[Callable[[], object], str], most: int = 600
) -> None:
    """Fail with all calls that do not raise this error, with this part of a message.

    most: how many characters a message may have.
    """
    offenders = []
    for call, message in calls:
        try:
            call()
        except Exception as raised:
            if isinstance(raised, error) and message in str(raised) and len(str(raised)) <= most:
                continue
            offenders.append(f"{message!r} is not what it says: {raised!r}")
        else:
            offenders.append(f"{message!r} is not said")
    assert not offenders, "\n".join(offenders)
