"""`verify_model`: the queries and keys that each layer's attention in a live model really gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.checks import check_int, shown
from ropewalk.rotary.config.config_json import LENGTH_KEYS, load_config
from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.live_model import preserved
from ropewalk.tools.verify.applied_rotation import rows_for
from ropewalk.tools.verify.capture_attention import (
    Attended,
    Numbering,
    Recorder,
    Shape,
    capture,
    hollow,
)
from ropewalk.tools.verify.layer_checks import NAME, AxisRun, LengthRun, PlaceRun
from ropewalk.tools.verify.verify_report import Check, Place, Report, fault, not_tested

TOKEN_NAMES = (
    "input_ids",
    "decoder_input_ids",
    "tokens",
    "token_ids",
    "ids",
    "idx",
    "inputs",
    "input",
)
POSITION_NAMES = (
    "position_ids",
    "decoder_position_ids",
    "positions",
    "input_pos",
    "pos_ids",
    "position",
)
CONTIGUOUS = 257  # positions of a model that takes none


class ModelError(ValueError):
    """The model's own code raised."""


@dataclass(frozen=True)
class Driver:
    """A stack, and the names of its arguments for tokens and positions."""

    stack: nn.Module
    tokens: str
    positions: str | None
    others: dict[str, Any]

    def run(self, shape: Shape, positions: Tensor, seen: Callable[[Attended], None]) -> None:
        """Run the stack on `shape.rows` rows at positions (S,) or (A, S).

        The stack stays in eval mode; see `preserved`. Raises ModelError if the model's code raises,
        and what `seen` raises as it is.
        """
        device = _device(self.stack)
        S = shape.positions = positions.shape[-1]
        ids = torch.ones(shape.rows, S, dtype=torch.long, device=device)
        given = {self.tokens: ids, **self.others}
        if self.positions is not None:
            given[self.positions] = (
                positions.to(device).unsqueeze(-2).expand(*positions.shape[:-1], shape.rows, S)
            )
        self.stack.eval()
        recorder = Recorder(seen, shape)
        try:
            with torch.no_grad(), hollow(self.stack, shape), capture(self.stack, recorder):
                self.stack(**given)
        except Exception as error:
            if recorder.error is not None:
                raise recorder.error from None
            says = " ".join(str(error).split()) or "no message"
            raise ModelError(f"{type(error).__name__}: {shown(says, 160)}") from error
        if recorder.error is not None:
            raise recorder.error


def takes_tokens(target: nn.Module) -> bool:
    """Return whether a module is a model that takes tokens, not a rotation of vectors."""
    parameters = inspect.signature(_text_stack(target).forward).parameters
    names = [name for name in TOKEN_NAMES if name in parameters]
    embeds = any(isinstance(module, nn.Embedding) for module in target.modules())
    return bool(names) and (embeds or hasattr(target, "get_input_embeddings"))


def text_driver(model: nn.Module) -> Driver:
    """Return how a model's text stack is called. Raises ValueError if it takes no tokens."""
    stack = _text_stack(model)
    parameters = inspect.signature(stack.forward).parameters
    tokens = next((name for name in TOKEN_NAMES if name in parameters), None)
    if tokens is None:
        raise ValueError(
            f"model must have a forward that takes {', '.join(TOKEN_NAMES[:3])} or similar, got "
            f"{type(stack).__name__} with {', '.join(parameters)}"
        )
    positions = next((name for name in POSITION_NAMES if name in parameters), None)
    others: dict[str, Any] = {}
    if "use_cache" in parameters:
        others["use_cache"] = False
    return Driver(stack, tokens, positions, others)


def _text_stack(model: nn.Module) -> nn.Module:
    """Return the module whose config is that of the text, or the model itself."""
    config = getattr(model, "config", None)
    if not hasattr(config, "get_text_config"):
        return model
    wanted = config.get_text_config()  # type: ignore[union-attr]
    found = model
    for module in model.modules():
        if getattr(module, "config", None) is not wanted:
            continue
        has_layers = any(isinstance(child, nn.ModuleList) for child in module.modules())
        parameters = inspect.signature(module.forward).parameters
        if has_layers and any(name in parameters for name in TOKEN_NAMES):
            found = module
    return found


def _device(model: nn.Module) -> torch.device:
    """Return where the model runs: the device of its buffers, which the ropes need."""
    tensors = [*model.buffers(), *model.parameters()]
    return next((t.device for t in tensors if not t.is_meta), torch.device("cpu"))


ModelConfig = str | PathLike[str] | Mapping[str, Any]
MOST_LENGTH = 2**16 + 1
LEAST_LENGTH = 64  # below, the angles of slow pairs are too small to tell
MOST_CONTIGUOUS = 4_096  # each position is a token
MOST_ROWS = 1_024
#: Powers of two for slopes; others, because bfloat16 holds powers of two exactly.
POSITIONS = (0, 1, 2, 3, 4, 5, 7, *(2**k for k in range(3, 17)), 37, 101, 259, 515, 1_001, 3_333)


def verify_model(
    model: nn.Module,
    like: ModelSpec | ModelConfig | None = None,
    *,
    length: int | None = None,
) -> Report:
    """Return what the rope of each layer does to the queries and keys that attention gets.

    model: a transformers model, or a module whose forward takes tokens and positions. Projections,
        embeddings and norms are replaced while it runs, so weights do not matter. Its state is
        restored afterwards. No other thread may use the same model meanwhile.
    like: what it should do: a ModelSpec or a config (path, dict). None: the model's own config.
    length: how many positions are used, 64 to 65,537; at most 4,096 if the model takes no
        positions. None: those that the config promises. A length-dependent rule is also tested at
        its original length, and between the two.

    Each check names its layer in `where`, as in "layer 3, q". Raises ValueError or TypeError if the
    config cannot be read or the model takes no tokens; errors of the model's own code are faults.

    Example:
        >>> from ropewalk import LayerSpec, ModelSpec, RotarySpec, tools
        >>> from ropewalk.encodings import build
        >>> from ropewalk.model import LanguageModel, TransformerShape
        >>> shape = TransformerShape(100, 32, 4, 64, encoder_layers=0, decoder_layers=2)
        >>> rope = build("rotary", shape.stack_shape(causal=True))
        >>> model = LanguageModel(shape, rope, causal=True)
        >>> layer = LayerSpec(RotarySpec(head_dim=8, theta=500_000.0))
        >>> tools.verify_model(model, ModelSpec({"text": (layer, layer)})).faults
        ('theta',)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if length is not None:
        check_int("length", length, LEAST_LENGTH, ", so that slow pairs can be measured")
    if like is None:
        like = getattr(model, "config", None)
        if like is None:
            raise ValueError("like must be given: the model has no config")
    if isinstance(like, (RotarySpec, LayerSpec)):
        raise TypeError(
            f"like must be a ModelSpec or a config, for all layers of a model, got {shown(like)}"
        )
    spec = like if isinstance(like, ModelSpec) else ModelSpec.from_config(like)
    if "text" not in spec.stacks:
        raise ValueError(
            f"like must describe a stack of text, the only one that is verified, "
            f"got {', '.join(spec.stacks)}"
        )
    promised = None if isinstance(like, ModelSpec) else max_positions(like)
    driver = text_driver(model)
    takes_positions = driver.positions is not None
    most = MOST_LENGTH if takes_positions else MOST_CONTIGUOUS
    if length is not None and length > most:
        without = "" if takes_positions else " for a model that takes no positions"
        raise ValueError(f"length must be at most {most:,}{without}, got {shown(length)}")
    lengths = _lengths(spec, length, promised, takes_positions)
    with preserved(model):
        checks = tuple(_verify_layers(driver, spec, lengths))
    form = f"the text stack of a model, {len(spec.layers)} layers"
    ropes = tuple(
        Place(number, part)
        for number, layer in enumerate(spec.layers)
        if layer.rope is not None
        for part in "qk"
    )
    met = {place.layer for check in checks for place in check.places if place.layer is not None}
    extra = tuple(Place(layer) for layer in sorted(met) if layer >= len(spec.layers))
    return Report(type(model).__name__, form, checks, ropes, extra)


def max_positions(config: Any) -> int | None:
    """Return how many positions a config promises, or None."""
    loaded = load_config(config)
    for section in (loaded, loaded.get("text_config")):
        for key in LENGTH_KEYS:
            value = section.get(key) if isinstance(section, Mapping) else None
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def _lengths(
    spec: ModelSpec, length: int | None, promised: int | None, takes_positions: bool
) -> tuple[int, ...]:
    """Return the lengths to run: the longest first, because its tables must not outlive it."""
    if not takes_positions:
        return (length or min(promised or CONTIGUOUS, CONTIGUOUS),)
    ropes = [layer.rope for layer in spec.layers if layer.rope is not None]
    rules = [rope.scaling for rope in ropes if rope.needs_length]
    originals = {int(getattr(rule, "original_length", 2)) for rule in rules}
    longest = length or promised or MOST_LENGTH
    if length is None and originals and longest <= max(originals):
        longest = 4 * max(originals)
    longest = min(longest, MOST_LENGTH)
    shorter = {n for original in originals for n in (original, (original + longest) // 2)}
    return (longest, *sorted((n for n in shorter if 1 < n < longest), reverse=True))


@dataclass
class _Sizes:
    """What a first, short run of a model shows.

    rows: how many the least-squares fit needs. numbering: which list is that of the layers.
    """

    numbering: Numbering
    rows: int = 1

    def see(self, attended: Attended) -> None:
        self.numbering.see(attended)
        for x in (attended.q, attended.k):
            if x.ndim == 4:
                self.rows = max(self.rows, rows_for(x, attended.rotations))


def _verify_layers(driver: Driver, spec: ModelSpec, lengths: tuple[int, ...]) -> Iterator[Check]:
    shape, sizes = Shape(), _Sizes(Numbering.of(driver.stack))
    try:
        driver.run(shape, torch.arange(3), sizes.see)
    except ModelError as error:
        yield fault("runs", "fails", str(error))
        return
    path = sizes.numbering.chosen(len(spec.layers))
    if path is None or sizes.numbering.lists[path] != len(spec.layers):
        says = f"the model has no list of {len(spec.layers)} layers that reach attention"
        yield not_tested("layers", says)
    shape.rows = min(sizes.rows, MOST_ROWS)
    longest = lengths[0]
    for number, length in enumerate(lengths):
        run = _run_length(driver, shape, spec, path, length, longest if number else None)
        if run.length < length and not any(check.name == "runs" for check in run.checks):
            yield fault("positions", "table-too-short", f"positions {run.length:,} on: {run.error}")
            longest = run.length
        yield from run.placed(several=len(lengths) > 1)
        if not number and run.unplaced:
            yield from _verify_places(driver, spec, path, run.unplaced)
    yield from _verify_axes(driver, shape, spec, path)


def _run_length(
    driver: Driver,
    shape: Shape,
    spec: ModelSpec,
    path: str | None,
    length: int,
    before: int | None,
) -> LengthRun:
    """Run at a length, or at the longest half, quarter … of it that the model's code serves."""
    error = ""
    while True:
        run = LengthRun(spec, _positions(driver, length), path, length, before)
        try:
            driver.run(_unlike(shape, run.at), run.at, run.see)
        except ModelError as failure:
            error = error or str(failure)
            if length > 3:
                length //= 2
                continue
            run.checks.append(fault("runs", "fails", error))
        run.error = error
        return run


def _positions(driver: Driver, length: int) -> Tensor:
    if driver.positions is None:
        return torch.arange(length)
    return torch.tensor(sorted({*(p for p in POSITIONS if p < length), length - 1}))


def _unlike(shape: Shape, positions: Tensor) -> Shape:
    """Return a shape that has another number of rows than of positions, to tell axes apart."""
    shape.rows += shape.rows == positions.shape[-1]
    return shape


def _verify_places(
    driver: Driver, spec: ModelSpec, path: str | None, layers: set[int]
) -> Iterator[Check]:
    """Check query temperatures in one call that is longer than their length."""
    found = [spec.layers[layer].query_temperature for layer in layers]
    longest = max(each.length for each in found if each is not None) + 2
    run = PlaceRun(spec, torch.arange(min(longest, MOST_LENGTH)), path, layers)
    try:
        driver.run(Shape(), run.at, run.see)
    except ModelError as error:
        yield not_tested(NAME, f"a call of {len(run.at):,} tokens fails: {error}")
    yield from run.checks


def _verify_axes(
    driver: Driver, shape: Shape, spec: ModelSpec, path: str | None
) -> Iterator[Check]:
    """Check which pairs follow which axis: positions grow along one axis at a time."""
    counts = {layer.rope.axis_count for layer in spec.layers if layer.rope is not None}
    if driver.positions is None or counts <= {1}:
        return
    near = torch.tensor([p for p in POSITIONS if p < 1_024])
    for axis in range(max(counts)):
        at = torch.zeros(max(counts), len(near), dtype=torch.long)
        at[axis] = near
        run = AxisRun(spec, at, path, axis)
        try:
            driver.run(_unlike(shape, near), at, run.see)
        except ModelError as error:
            yield not_tested(f"axis {axis}", str(error))
        yield from run.checks
