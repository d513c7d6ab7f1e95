"""One line for the tests of a port: is every rope the one that the config describes?

    from ropewalk.testing import assert_rope_like

    def test_rope():
        assert_rope_like(my_model, "path/to/config.json")

With pytest, `assert_rope_like` is also a fixture, without any import. This module is the plugin
that provides it. It does not import torch until a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

try:
    import pytest
except ImportError:  # the function serves other test runners too
    pytest = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from ropewalk.rotary.layer_spec import LayerSpec
    from ropewalk.rotary.model_spec import ModelSpec
    from ropewalk.rotary.spec import RotarySpec
    from ropewalk.tools.verify import Check, Report

__all__ = ["assert_rope_like"]

MOST_LINES = 12  # of a failure message; a wrong model has a line for each layer


def assert_rope_like(
    model_or_function: Callable[..., Any],
    config: RotarySpec | LayerSpec | ModelSpec | str | PathLike[str] | Mapping[str, Any],
    positions: int | None = None,
) -> None:
    """Raise AssertionError if a model or function does not rotate as a config says.

    Also raises it if the rotation of a layer cannot be tested, or if every call fails.

    model_or_function: a model that takes tokens, or a function or module that rotates vectors. For
        a model, the queries and keys that attention gets in each layer are measured.
    config: a path, a dict, a transformers config, or a spec.
    positions: how many positions to test. A scaling rule that depends on the length uses
        this number as the length. None: the config's `max_position_embeddings`.

    The message names the fault, the layer, the likely cause and the numbers. A target whose every
    call raises, or returns no rotated vectors, has the fault `fails`. Raises ValueError or
    TypeError if the config cannot be read, or if no call can be made: the target is no function, or
    has required arguments of unknown names.

    Example:
        >>> from ropewalk import RotaryEmbedding, RotarySpec
        >>> from ropewalk.testing import assert_rope_like
        >>> assert_rope_like(RotaryEmbedding(RotarySpec(64)), RotarySpec(64))
    """
    __tracebackhide__ = True
    report = _report(model_or_function, config, positions)
    if not report.right:
        raise AssertionError(message(report))
    if not any(check.verdict == "right" for check in report.checks):
        raise AssertionError(f"{report.target}: nothing could be tested: {_reasons(report)}")
    if not report.complete:
        untested = "; ".join(report.untested[:MOST_LINES])
        raise AssertionError(f"{report.target}: not tested: {untested}: {_reasons(report)}")


def _report(target: Callable[..., Any], config: Any, positions: int | None) -> Report:
    from torch import nn

    from ropewalk.tools.verify import Report, verify
    from ropewalk.tools.verify.call_form import TargetError
    from ropewalk.tools.verify.verify import read_like
    from ropewalk.tools.verify.verify_model import takes_tokens, verify_model
    from ropewalk.tools.verify.verify_report import fault

    if isinstance(target, nn.Module) and takes_tokens(target):
        return verify_model(target, config, length=positions)
    spec = read_like(config).spec
    depends = spec is not None and spec.needs_length
    try:
        return verify(target, like=config, length=positions if depends else None)
    except TargetError as error:
        name = getattr(target, "__name__", type(target).__name__)
        return Report(name, "", (fault("calls", "fails", str(error)),))


def message(report: Report) -> str:
    """Return the faults of a report, as a failed test shows them."""
    from ropewalk.tools.verify.verify_report import by_layers

    found = [check for check in by_layers(report) if check.verdict == "fault"]
    lines = [f"{report.target} does not rotate as the config says:"]
    lines += [_line(check) for check in found[:MOST_LINES]]
    if len(found) > MOST_LINES:
        lines.append(f"  and {len(found) - MOST_LINES} more")
    return "\n".join(lines)


def _line(check: Check) -> str:
    where = f"{check.where}: " if check.where else ""
    return f"  {where}{check.fault}: {check.says}\n    likely cause: {check.cause}"


def _reasons(report: Report) -> str:
    says = dict.fromkeys(check.says for check in report.with_verdict("not tested"))
    return "; ".join(says) or "no layer that rotates was reached"


if pytest is not None:

    @pytest.fixture(name="assert_rope_like")
    def assert_rope_like_fixture() -> Callable[..., None]:
        """Return `ropewalk.testing.assert_rope_like`."""
        return assert_rope_like
