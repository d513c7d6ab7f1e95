"""A run's config: one typed record with all that a run depends on, validated.

A sweep is part of it: fields with values that each encoding tries on validation data.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from ropewalk.checks import did_you_mean, shown
from ropewalk.encodings import Encoding, build, build_encoder_decoder, split_names
from ropewalk.encodings.outside import ImportedSource, import_error
from ropewalk.lab.presets import TASKS, TRANSLATION_EXAMPLES, fields_of_other_tasks
from ropewalk.model import TransformerShape
from ropewalk.model.features import parse_attention

#: The swept fields of one cell with their values, in the order of `SWEPT_FIELDS`.
Settings = tuple[tuple[str, Any], ...]

#: The stage at which work on a cell stops: after training, after trying the sweep's decoding
#: settings on validation data, or after scoring on test data.
Goal = Literal["trained", "tuned", "scored"]

#: Fields that change training but not the prepared data.
TRAINING_FIELDS = (
    *("width", "heads", "kv_heads", "feed_forward", "encoder_layers", "decoder_layers", "layers"),
    *("attention", "dropout", "epochs", "batch_tokens", "batch_sentences", "accumulate"),
    *("learning_rate", "warmup", "schedule", "label_smoothing", "clip"),
)
#: Fields that can change without training again: they determine which snapshots are used for
#: decoding, and how the beam search works.
DECODING_FIELDS = ("beam", "length_penalty", "select", "average")
SWEPT_FIELDS = (*TRAINING_FIELDS, *DECODING_FIELDS)
#: Fields that a cell's scores depend on, besides those of its training.
SCORING_FIELDS = (*DECODING_FIELDS, "length_multiples", "test_examples")

# Bounds far beyond published models: they catch slips of the keyboard before anything runs.
MOST_POSITIONS = 2**20  # positions of an example
MOST_POINTS = 100  # combinations of a sweep
MOST_MISTAKES = 30  # in one message
MAX_CHARACTERS = 100  # of a folder's name; file systems allow 255 bytes

Positive = Annotated[int, Field(ge=1, lt=2**31)]
Size = Annotated[int, Field(ge=1, le=2**17)]
Layers = Annotated[int, Field(ge=1, le=1_000)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Vocabulary = Annotated[int, Field(ge=1, le=2**20)]
Epochs = Annotated[float, Field(gt=0, le=1e6)]
Scale = Annotated[float, Field(gt=0, le=1e38)]
Warmup = Annotated[float, Field(ge=0, le=1e9)]
Beam = Annotated[int, Field(ge=1, le=100)]
Penalty = Annotated[float, Field(ge=0, le=100)]

_unchecked: ContextVar[bool] = ContextVar("unchecked", default=False)


class Config(BaseModel):
    """A comparison: what is trained on what, how, and how it is scored.

    The fields are in the order in which files and listings show them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    preset: str = Field("default", description="preset that the other defaults come from")
    task: str = Field("translation", description="what is trained and scored; see ropewalk tasks")
    # What is compared.
    encodings: tuple[str, ...] = Field(
        ("sinusoidal", "rotary"), description="encodings to compare; see ropewalk encodings"
    )
    seeds: tuple[Seed, ...] = Field(
        (1, 2, 3), description="seeds of parameters, data order and dropout"
    )
    sweep: dict[str, tuple[Any, ...]] = Field(
        {}, description="values that each encoding tries on validation data (--sweep)"
    )
    imports: tuple[ImportedSource, ...] = Field(
        (), description="sources of user-defined encodings (--import)"
    )
    # Data.
    data: str = Field("phrases", description="built-in corpus, files, folder or hf:NAME")
    source: str = Field("de", description="source language: ending of the files' names")
    target: str = Field("en", description="target language: ending of the files' names")
    lowercase: bool = Field(False, description="lowercase before training, score without case")
    vocabulary: Vocabulary = Field(2000, description="byte-pair tokens, shared by both languages")
    max_tokens: Positive = Field(
        100, description="training pairs with more tokens on either side are left out"
    )
    train_length: Positive = Field(
        64, description="trained length: tokens of a window, or items of a generated sequence"
    )
    length_multiples: tuple[Positive, ...] = Field(
        (1, 2, 4, 8), description="multiples of train_length that are scored"
    )
    examples: Positive = Field(
        1000, description="generated training examples: sequences, built-in tales or phrases"
    )
    test_examples: Positive = Field(
        100, description="examples of each test split; of text, windows of the greatest length"
    )
    mask_ratio: Share = Field(0.15, description="share of tokens that masked-lm predicts")
    # Model.
    width: Size = Field(128, description="model width")
    heads: Size = Field(4, description="query heads; must divide width")
    kv_heads: Size | None = Field(None, description="key/value heads; null: as many as heads")
    feed_forward: Size = Field(512, description="width of the feed-forward layers")
    encoder_layers: Layers = Field(2, description="layers of translation's encoder")
    decoder_layers: Layers = Field(2, description="layers of translation's decoder")
    layers: Layers = Field(2, description="layers of the single stack of the other tasks")
    attention: str = Field(
        "softmax", description="softmax, or linear: performer, elu, performer(features=64)"
    )
    dropout: Fraction = Field(0.0, description="dropout rate")
    # Training.
    epochs: Epochs = Field(1.3, description="passes over the training data")
    batch_tokens: Positive = Field(400, description="padded tokens of a batch, on its longer side")
    batch_sentences: Positive | None = Field(
        None, description="sentences of a training batch; null: as many as batch_tokens allows"
    )
    accumulate: Positive = Field(1, description="batches whose gradients make one step")
    learning_rate: Scale = Field(3e-3, description="peak learning rate; with noam, its factor")
    warmup: Warmup = Field(0.1, description="warmup steps; below 1, a share of all steps")
    schedule: Literal["linear", "noam"] = Field(
        "linear", description="after warmup: to zero, or by 1/sqrt(step)"
    )
    label_smoothing: Fraction = Field(0.1, description="label smoothing")
    clip: Scale = Field(1.0, description="largest norm of the gradient")
    validations: Positive = Field(
        5, description="how often validation loss is computed and a snapshot saved"
    )
    keep: Positive = Field(5, description="newest snapshots that stay on disk, besides the best")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="precision of training"
    )
    device: str = Field("auto", description="auto, cpu, cuda, …")
    parallel: Literal["ddp", "fsdp"] = Field(
        "ddp", description="under torchrun: copies of the model, or parts of its parameters (fsdp)"
    )
    compile: bool = Field(False, description="train with torch.compile: slow start, faster steps")
    # Scoring.
    beam: Beam = Field(4, description="beam width; 1: greedy")
    length_penalty: Penalty = Field(
        0.6, description="power of the length that beam scores are divided by"
    )
    select: Literal["average", "best"] = Field(
        "average", description="mean of the last snapshots, or the best one"
    )
    average: Positive = Field(1, description="snapshots that are averaged; at most keep")
    splits: tuple[str, ...] | None = Field(
        None, description="splits to score; null: every test split"
    )

    @field_validator("task")
    @classmethod
    def _check_task(cls, task: str) -> str:
        if task not in TASKS:
            raise ValueError(f"must be one of {', '.join(TASKS)}{did_you_mean(task, TASKS)}")
        return task

    @field_validator("*", mode="before")
    @classmethod
    def _check_plain(cls, value: Any, info: Any) -> Any:
        field = cls.model_fields[info.field_name]
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(each, str):
                check_text(each)
            if isinstance(each, bool) and field.annotation is not bool:  # pydantic reads true as 1
                raise ValueError(f"must be {rule_of(field)}")
        return value

    @field_validator("encodings", "seeds", "splits", "length_multiples", mode="before")
    @classmethod
    def _split_list(cls, value: Any, info: Any) -> Any:
        if isinstance(value, int):
            return (value,)
        if isinstance(value, str):
            value = ["".join(name.split()) for name in split_names(value)]
        if isinstance(value, (list, tuple)) and not value:
            raise ValueError("must have at least one value")
        return value

    @field_validator("sweep", mode="before")
    @classmethod
    def _check_sweep(cls, sweep: Any) -> dict[str, tuple[Any, ...]]:
        if not isinstance(sweep, dict):
            raise ValueError("must be fields, each with a list of values")
        for name, values in sweep.items():
            if name not in SWEPT_FIELDS:
                known = name in cls.model_fields
                hint = "" if known else did_you_mean(str(name)[:80], SWEPT_FIELDS)
                raise ValueError(
                    f"can't vary {shown(name)}; it can vary {', '.join(SWEPT_FIELDS)}{hint}"
                )
            if not isinstance(values, (list, tuple)) or not values:
                raise ValueError(f"must set {name} to a list of values, not {shown(values)}")
        read = {name: tuple(cls._read_field(name, v) for v in sweep[name]) for name in sweep}
        for name, values in read.items():
            if len(set(values)) < len(values):
                raise ValueError(f"must have each value of {name} once")
        if math.prod(map(len, read.values())) > MOST_POINTS:
            raise ValueError(f"must have at most {MOST_POINTS} combinations")
        return read

    @classmethod
    def _read_field(cls, name: str, value: Any) -> Any:
        """Return a value as the field itself would read it."""
        field = cls.model_fields[name]
        try:
            if isinstance(value, bool):
                raise ValueError
            kind: Any = field.annotation
            for mark in field.metadata:
                kind = Annotated[kind, mark]
            return TypeAdapter(kind).validate_python(value)
        except ValueError:
            raise ValueError(f"must set {name} to {rule_of(field)}, not {shown(value)}") from None

    @model_validator(mode="before")
    @classmethod
    def _fill_examples(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("task", "translation") == "translation":
            return {"examples": TRANSLATION_EXAMPLES, **fields}
        return fields

    @model_validator(mode="after")
    def _check_consistency(self) -> Config:
        unchecked = _unchecked.get()
        imports = () if unchecked else self.imports
        errors = (import_error(imported.source, imported.digest) for imported in imports)
        mistakes = [error for error in errors if error is not None]
        if mistakes:  # first: otherwise every encoding of theirs is reported as unknown
            raise ValueError("; ".join(mistakes))
        if self.width % self.heads:
            mistakes.append(f"heads must divide width, got heads={self.heads}, width={self.width}")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            mistakes.append(f"kv_heads must divide heads, got {self.kv_heads} and {self.heads}")
        if self.average > self.keep:
            mistakes.append(f"average must be at most keep={self.keep}, got {self.average}")
        for name in ("encodings", "seeds", "length_multiples", "splits"):
            values = getattr(self, name) or ()
            different = {slug(value) if name == "encodings" else value for value in values}
            if len(different) < len(values):
                mistakes.append(f"{name} must not repeat a value, got {shown(list(values), 200)}")
        generated = self.task != "translation" or self.data == "phrases"
        if not generated and self.examples != TRANSLATION_EXAMPLES:
            mistakes.append(
                f"examples counts generated pairs, got {self.examples} with data={self.data}; "
                f"remove it, or use data=phrases"
            )
        longest = self.train_length * max(self.length_multiples)
        if longest > MOST_POSITIONS:
            mistakes.append(
                f"train_length times the largest of length_multiples must be at most "
                f"{MOST_POSITIONS:,} positions, got {longest:,}"
            )
        try:
            parse_attention(self.attention)
        except (ValueError, TypeError) as error:
            mistakes.append(str(error))
        others = [name for name in self.sweep if name in fields_of_other_tasks(self.task)]
        if self.sweep and "validation" in (self.splits or ()):
            mistakes.append(
                "splits must not include validation with a sweep, because the sweep selects on it"
            )
        if others:
            mistakes.append(f"sweep can't vary {others[0]}, which task {self.task} does not have")
        if not mistakes and not unchecked:
            mistakes = [error for error in map(self._build_error, self.encodings) if error]
        if mistakes:
            raise ValueError("; ".join(mistakes))
        for point in points(self.sweep, self.sweep):
            try:
                self.with_settings(point)
            except ValidationError as error:
                raise ValueError(f"sweep, {described(point)}: {first_line(error)}") from None
        return self

    def _build_error(self, encoding: str) -> str | None:
        """Return why an encoding cannot be built for this model, or None."""
        try:
            stacks = self.stacks(encoding)
            if self.attention != "softmax":  # linear attention supports only some encodings
                for stack in stacks.values():
                    self.shape(vocabulary=1).new_attention(stack.for_layer(0))
        except (ValueError, TypeError) as error:
            return f"{cut(encoding, 200)}: {cut(str(error), 1500)}"
        except (MemoryError, RuntimeError) as error:  # tables too large, or nested too deep
            reason = cut(" ".join(str(error).split()), 200) or "parentheses are nested too deep"
            return f"{cut(encoding, 200)}: it cannot be built here: {reason}"
        return None

    def stacks(self, encoding: str) -> dict[str, Encoding]:
        """Return an encoding built for each place in the model: encoder, decoder and cross."""
        shape = self.shape(vocabulary=1)
        both_ways, back = shape.stack_shape(causal=False), shape.stack_shape(causal=True)
        if self.task == "translation":
            built = build_encoder_decoder(encoding, both_ways, back)._asdict()
            return {place: stack for place, stack in built.items() if stack is not None}
        place, stack = ("decoder", back) if self.causal else ("encoder", both_ways)
        return {place: build(encoding, stack)}

    @property
    def causal(self) -> bool:
        """Whether the single stack of a language model attends only to the past."""
        return self.task != "masked-lm"

    def shape(self, vocabulary: int) -> TransformerShape:
        """Return the sizes of the model, for the vocabulary size of the data."""
        encoder, decoder = self.encoder_layers, self.decoder_layers
        if self.task != "translation":
            encoder, decoder = (0, self.layers) if self.causal else (self.layers, 0)
        return TransformerShape(
            vocabulary=vocabulary,
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads,
            feed_forward=self.feed_forward,
            encoder_layers=encoder,
            decoder_layers=decoder,
            dropout=self.dropout,
            attention=self.attention,
        )

    def with_settings(self, settings: Settings) -> Config:
        """Return the config of a cell with these settings, or this one if there are none."""
        fields = {**self.model_dump(), **dict(settings), "sweep": {}}
        return Config.model_validate(fields) if settings else self

    def facts(self) -> dict[str, Any]:
        """Return the fields of the task as JSON values, without empty imports or sweep."""
        empty = [name for name in ("imports", "sweep") if not getattr(self, name)]
        others = {*fields_of_other_tasks(self.task), *empty}
        # Real corpora have no such field, and checkpoints are compared by these fields.
        if self.task == "translation" and self.examples == TRANSLATION_EXAMPLES:
            others.add("examples")
        return {k: v for k, v in self.model_dump(mode="json").items() if k not in others}

    def decoding(self) -> dict[str, Any]:
        """Return the fields that a cell's scores depend on, besides those of its training."""
        return {name: value for name, value in self.facts().items() if name in SCORING_FIELDS}


@contextmanager
def encodings_unchecked() -> Iterator[None]:
    """Read configs without building their encodings, so that code of --import is not needed."""
    token = _unchecked.set(True)
    try:
        yield
    finally:
        _unchecked.reset(token)


def check_text(text: str) -> None:
    """Raise ValueError for text that cannot be in a file name or a JSON file."""
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("must be valid UTF-8")


def slug(encoding: str) -> str:
    """Return an encoding's name as a folder name: `rotary(theta=1e6)` gives `rotary-theta-1e6`.

    Names differ if encodings differ: a minus is spelled out, and a long name ends in a digest.
    """
    spelled = re.sub(r"-(?=[\d.])", "minus", encoding)
    name = re.sub(r"[^A-Za-z0-9.+]+", "-", spelled).strip("-")
    if len(name) <= MAX_CHARACTERS:
        return name
    return f"{name[:MAX_CHARACTERS]}-{hashlib.sha256(encoding.encode()).hexdigest()[:12]}"


def points(sweep: Mapping[str, Sequence[Any]], fields: Collection[str]) -> list[Settings]:
    """Return all combinations of the values that `sweep` gives to `fields`; `[()]` if none.

    The order of fields is fixed, so that folder names do not depend on the order of options.
    """
    swept = [name for name in SWEPT_FIELDS if name in sweep and name in fields]
    axes = [[(name, value) for value in sweep[name]] for name in swept]
    return list(itertools.product(*axes))


def described(settings: Settings) -> str:
    """Return settings as text for people and folders: `learning_rate=0.002 dropout=0.1`."""
    return " ".join(f"{name}={value}" for name, value in settings)


def validated(fields: Any, where: str = "") -> Config:
    """Return a config of these fields. Raises ValueError with all mistakes in one line.

    where: what has these fields, as the beginning of the message.
    """
    try:
        return Config.model_validate(fields)
    except ValidationError as error:
        raise ValueError(f"{where}{first_line(error)}") from None


def first_line(error: ValidationError) -> str:
    """Return all mistakes of a config in one line, or the first ones if there are many."""
    mistakes = error.errors()
    messages = [_message(mistake) for mistake in mistakes[:MOST_MISTAKES]]
    more = len(mistakes) - len(messages)
    return "; ".join([*messages, f"and {more} more"] if more else messages)


def rule_of(field: FieldInfo) -> str:
    """Return what a field must be, such as "an integer from 1 to 100"."""
    return _rule(field.annotation, field.metadata)


def field_hint(name: str) -> str:
    """Return which field a name of another library or an option stands for, or ""."""
    field = {"steps": "epochs", "max_steps": "epochs", "lr": "learning_rate"}.get(name, name)
    return f"; write the field {field}=VALUE" if field in Config.model_fields else ""


def _message(mistake: Any) -> str:
    fields = Config.model_fields
    name, got = (mistake["loc"] or ("",))[0], shown(mistake["input"])
    if mistake["type"] == "invalid_key":
        return f"config keys must be text, got {got}"
    if mistake["type"] == "extra_forbidden":
        hint = field_hint(str(name)) or did_you_mean(name, fields)
        return f"{shown(name)} is not a field of a config{hint}"
    if mistake["type"] == "value_error":
        message = str(mistake["ctx"]["error"])
    elif name:  # replaces pydantic's less precise words
        message = f"must be {rule_of(fields[name])}"
    else:
        message = mistake["msg"]
    return f"{name} {message}, got {got}" if name else message


def _rule(kind: Any, bounds: Iterable[Any] = (), several: bool = False) -> str:
    """Return what a value of this type must be, within these bounds; `several`: in a list."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        marks = [mark for each in inner[1:] for mark in getattr(each, "metadata", [each])]
        return _rule(inner[0], [*marks, *bounds], several)
    if origin in (typing.Union, types.UnionType):
        kinds = [each for each in inner if each is not types.NoneType]
        return " or ".join([_rule(each, bounds, several) for each in kinds] + ["null"])
    if origin is typing.Literal:
        return " or ".join(map(str, inner))
    if origin is tuple:
        return _rule(inner[0], bounds, several=True)
    if origin is dict:
        return "fields, each with a list of values"
    if kind is bool:
        return "true or false"
    if kind is int:
        return ("integers" if several else "an integer") + _bounds(bounds, whole=True)
    if kind is float:
        return ("finite numbers" if several else "a finite number") + _bounds(bounds)
    if kind is str:
        return "words, or a list of them" if several else "text"
    return "a list as in a run's config.json"


def _bounds(bounds: Iterable[Any], whole: bool = False) -> str:
    """Return the bounds of annotated_types' marks in words; bounds of integers are inclusive."""
    held = {name: getattr(each, name) for each in bounds for name in _SIDES if hasattr(each, name)}
    if whole:
        return f" from {held['ge']} to {held['lt'] - 1 if 'lt' in held else held['le']}"
    least = f" above {held['gt']:g}" if "gt" in held else f" of at least {held['ge']:g}"
    most = f"below {held['lt']:g}" if "lt" in held else f"at most {held['le']:g}"
    return f"{least} and {most}"


_SIDES = ("gt", "ge", "lt", "le")


def cut(text: str, most: int) -> str:
    """Return the text, shortened to `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"
