"""A run's config: one typed record with all that a run depends on, validated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, field_validator, model_validator

from ropewalk.checks import did_you_mean, shown
from ropewalk.encodings import Encoding, build, build_encoder_decoder, split_names
from ropewalk.encodings.outside import import_error
from ropewalk.lab.cells import slug
from ropewalk.lab.config_fields import MOST_BEAM as MOST_BEAM
from ropewalk.lab.config_fields import MOST_LENGTH_PENALTY as MOST_LENGTH_PENALTY
from ropewalk.lab.config_fields import ConfigFields
from ropewalk.lab.field_rules import in_one_line, rule_of
from ropewalk.lab.fields import check_text
from ropewalk.lab.former_names import current_encoding
from ropewalk.lab.presets import TASKS, TRANSLATION_EXAMPLES, fields_of_other_tasks
from ropewalk.lab.sweep import (
    DECODING_FIELDS,
    MOST_POINTS,
    Settings,
    check_sweep,
    count_points,
    described,
    points,
)
from ropewalk.model import TransformerShape
from ropewalk.model.features import parse_attention

MOST_POSITIONS = 2**20  # positions of an example


class Config(ConfigFields):
    """A comparison: what is trained on what, how, and how it is scored."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

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
        check_sweep(sweep, cls.model_fields)
        read = {name: tuple(cls._read_field(name, v) for v in sweep[name]) for name in sweep}
        for name, values in read.items():
            if len(set(values)) < len(values):
                raise ValueError(f"must have each value of {name} once")
        if count_points(read) > MOST_POINTS:
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
        found = (import_error(held.source, held.digest) for held in imports)
        mistakes = [error for error in found if error is not None]
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
            errors = map(self._build_error, self.encodings)
            mistakes = [error for error in errors if error is not None]
        if mistakes:
            raise ValueError("; ".join(mistakes))
        for point in points(self.sweep, self.sweep):
            self._check_point(point)
        return self

    def _check_point(self, point: Settings) -> None:
        try:
            self.with_settings(point)
        except ValidationError as error:
            raise ValueError(f"sweep, {described(point)}: {first_line(error)}") from None

    def _build_error(self, encoding: str) -> str | None:
        """Return why an encoding cannot be built for this model, or None."""
        try:
            shape = self.shape(vocabulary=1)
            both_ways, back = shape.stack_shape(causal=False), shape.stack_shape(causal=True)
            stacks: list[Encoding | None]
            if self.task == "translation":
                stacks = list(build_encoder_decoder(encoding, both_ways, back))
            else:
                stacks = [build(encoding, back if self.causal else both_ways)]
            if self.attention != "softmax":  # linear attention supports only some encodings
                for stack in filter(None, stacks):
                    shape.new_attention(stack.for_layer(0))
        except (ValueError, TypeError) as error:
            present = current_encoding(encoding)
            hint = f"; it is {present} now" if present != encoding else ""
            return f"{_cut(encoding, 200)}: {_cut(str(error), 1500)}{_cut(hint, 200)}"
        except (
            MemoryError,
            RuntimeError,
        ) as error:  # tables too large, or nested too deep
            reason = _cut(" ".join(str(error).split()), 200) or "parentheses are nested too deep"
            return f"{_cut(encoding, 200)}: it cannot be built here: {reason}"
        return None

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
        # Configs of earlier versions lack the field, and checkpoints are compared with them.
        if self.task == "translation" and self.examples == TRANSLATION_EXAMPLES:
            others.add("examples")
        return {k: v for k, v in self.model_dump(mode="json").items() if k not in others}

    def training(self) -> dict[str, Any]:
        """Return the fields that training depends on; a checkpoint is valid for these only."""
        facts = {name: value for name, value in self.facts().items() if name not in _NOT_TRAINING}
        if self.imports:  # compared by name and digest, not by folder
            held = [{**each, "source": Path(each["source"]).name} for each in facts["imports"]]
            facts["imports"] = held
        return facts

    def decoding(self) -> dict[str, Any]:
        """Return the other fields that a cell's scores depend on."""
        return {name: value for name, value in self.facts().items() if name in _DECODING}


_unchecked: ContextVar[bool] = ContextVar("unchecked", default=False)


@contextmanager
def encodings_unchecked() -> Iterator[None]:
    """Read configs without building their encodings, so that code of --import is not needed."""
    token = _unchecked.set(True)
    try:
        yield
    finally:
        _unchecked.reset(token)


_DECODING = (*DECODING_FIELDS, "length_multiples", "test_examples")
# Data is compared by its digest, not by its path.
_NOT_TRAINING = {*_DECODING, "preset", "encodings", "seeds", "sweep", "splits", "data"}
_NOT_TRAINING |= {"device", "parallel", "compile"}  # results differ by rounding only


def first_line(error: ValidationError) -> str:
    """Return all mistakes of a config in one line, or the first ones if there are many."""
    return in_one_line(error, Config.model_fields)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
