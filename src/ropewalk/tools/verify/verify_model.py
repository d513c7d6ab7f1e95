"""`verify_model`: the queries and keys that each layer's attention in a live model really gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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
from ropewalk.tools.verify.capture_attention import Attended, Recorder, Shape, capture, hollow
from ropewalk.tools.verify.function_checks import on_cached_keys
from ropewalk.tools.verify.layer_checks import NAME, AxisRun, LengthRun, PlaceRun, number_in
from ropewalk.tools.verify.verify_report import Check, Place, Report, fault, not_tested, remark

#: Names that code gives to the argument for tokens, and to that for positions.
TOKEN_NAMES = "input_ids decoder_input_ids tokens token_ids ids idx inputs input"
POSITION_NAMES = "position_ids decoder_position_ids positions input_pos pos_ids position"
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
        # Where the ropes are: on the device of the buffers.
        tensors = [*self.stack.buffers(), *self.stack.parameters()]
        device = next((t.device for t in tensors if not t.is_meta), torch.device("cpu"))
        S = shape.positions = positions.shape[-1]
        shape.rows += shape.rows == S  # another number than of positions, to tell axes apart
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
            if recorder.error is None:
                says = " ".join(str(error).split()) or "no message"
                raise ModelError(f"{type(error).__name__}: {shown(says, 160)}") from error
        if recorder.error is not None:
            raise recorder.error


def takes_tokens(target: nn.Module) -> bool:
    """Return whether a module is a model that takes tokens, not a rotation of vectors."""
    embeds = any(isinstance(module, nn.Embedding) for module in target.modules())
    tokens = _named_argument(_text_stack(target), TOKEN_NAMES)
    return tokens is not None and (embeds or hasattr(target, "get_input_embeddings"))


def text_driver(model: nn.Module) -> Driver:
    """Return how a model's text stack is called. Raises ValueError if it takes no tokens."""
    stack = _text_stack(model)
    tokens = _named_argument(stack, TOKEN_NAMES)
    if tokens is None:
        usual = ", ".join(TOKEN_NAMES.split()[:3])
        raise ValueError(
            f"model must have a forward that takes {usual} or similar, got "
            f"{type(stack).__name__} with {', '.join(inspect.signature(stack.forward).parameters)}"
        )
    others = {"use_cache": False} if _named_argument(stack, "use_cache") else {}
    return Driver(stack, tokens, _named_argument(stack, POSITION_NAMES), others)


def _named_argument(module: nn.Module, names: str) -> str | None:
    """Return the first of these names that an argument of a module's forward has."""
    parameters = inspect.signature(module.forward).parameters
    return next((name for name in names.split() if name in parameters), None)


def _text_stack(model: nn.Module) -> nn.Module:
    """Return the module whose config is that of the text, or the model itself."""
    config = getattr(model, "config", None)
    if not hasattr(config, "get_text_config"):
        return model
    wanted = config.get_text_config()  # type: ignore[union-attr]
    stack = model
    for module in model.modules():
        has_layers = any(isinstance(child, nn.ModuleList) for child in module.modules())
        of_text = getattr(module, "config", None) is wanted
        if of_text and has_layers and _named_argument(module, TOKEN_NAMES):
            stack = module
    return stack


ModelConfig = str | PathLike[str] | Mapping[str, Any]
MOST_LENGTH = 2**16 + 1
LEAST_LENGTH = 64  # below, the angles of slow pairs are too small to tell
MOST_CONTIGUOUS = 4_096  # each position is a token
MOST_ROWS = 1_024
#: Powers of two for slopes; others, because bfloat16 holds powers of two exactly.
POSITIONS = (0, 1, 2, 3, 4, 5, 7, *(2**k for k in range(3, 17)), 37, 101, 259, 515, 1_001, 3_333)


def verify_model(
    model: nn.Module, like: ModelSpec | ModelConfig | None = None, *, length: int | None = None
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
    beyond = {layer for check in checks for layer in check.layers if layer >= len(spec.layers)}
    extra = tuple(Place(layer) for layer in sorted(beyond))
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
class _Survey:
    """What a first, short run of a model shows.

    sizes: the path of each list of modules, and how many it has. met: which of them reach
    attention. rows: how many rows the least-squares fit needs.
    """

    sizes: dict[str, int]
    met: dict[str, set[int]] = field(default_factory=dict)
    rows: int = 1

    def see(self, attended: Attended) -> None:
        """Remember the layers in which an attention is, and the rows that it needs."""
        for path in self.sizes:
            if (number := number_in(path, attended.paths)) is not None:
                self.met.setdefault(path, set()).add(number)
        for x in (attended.q, attended.k):
            if x.ndim == 4:
                self.rows = max(self.rows, rows_for(x, attended.rotations))

    def layers(self, count: int) -> str | None:
        """Return the path of the list of `count` layers, or of the list that comes nearest.

        It is the list with the most layers that reach attention: by name alone, a list of experts
        or of stages may have as many modules. Of two such lists, the first that ran is taken.
        """
        if not self.met:
            return None
        return max(self.met, key=lambda path: (self.sizes[path] == count, len(self.met[path])))


def _verify_layers(driver: Driver, spec: ModelSpec, lengths: tuple[int, ...]) -> Iterator[Check]:
    kinds = (nn.ModuleList, nn.Sequential)
    lists = {path: m for path, m in driver.stack.named_modules() if isinstance(m, kinds)}
    shape, survey = Shape(), _Survey({path: len(modules) for path, modules in lists.items()})
    try:
        driver.run(shape, torch.arange(3), survey.see)
    except ModelError as error:
        yield fault("runs", "fails", str(error))
        return
    path = survey.layers(len(spec.layers))
    if path is None or survey.sizes[path] != len(spec.layers):
        says = f"the model has no list of {len(spec.layers)} layers that reach attention"
        yield not_tested("layers", says)
    shape.rows = min(survey.rows, MOST_ROWS)
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
    ropes = (layer.rope for layer in spec.layers if layer.rope is not None)
    for says in dict.fromkeys(on_cached_keys(rope) for rope in ropes if rope.needs_length):
        yield remark("cached keys", says)


def _run_length(
    driver: Driver, shape: Shape, spec: ModelSpec, path: str | None, length: int, before: int | None
) -> LengthRun:
    """Run at a length, or at the longest half, quarter … of it that the model's code serves."""
    error = ""
    while True:
        at = torch.arange(length)
        if driver.positions is not None:
            at = torch.tensor(sorted({*(p for p in POSITIONS if p < length), length - 1}))
        run = LengthRun(spec, at, path, length, before)
        try:
            driver.run(shape, at, run.see)
        except ModelError as failure:
            error = error or str(failure)
            if length > 3:
                length //= 2
                continue
            run.checks.append(fault("runs", "fails", error))
        run.error = error
        return run


def _verify_places(
    driver: Driver, spec: ModelSpec, path: str | None, layers: set[int]
) -> Iterator[Check]:
    """Check query temperatures in one call that is longer than their length."""
    temperatures = [spec.layers[layer].query_temperature for layer in layers]
    # Without steps, a factor is far enough from 1 only at twice the length.
    ends = [one.length * (1 if one.steps else 2) for one in temperatures if one is not None]
    longest = max(ends) + 2
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
            driver.run(shape, at, run.see)
        except ModelError as error:
            yield not_tested(f"axis {axis}", str(error))
        yield from run.checks
