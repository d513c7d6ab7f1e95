"""Everything that a run depends on, as one typed and validated record, and its presets."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ropewalk.encodings import build_encoder_decoder, split_names
from ropewalk.model import TransformerShape

Positive = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Config(BaseModel):
    """A comparison: what is trained on what, how, and how it is scored."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    preset: str = "default"
    # What is compared.
    encodings: tuple[str, ...] = ("sinusoidal", "rotary")
    seeds: tuple[Seed, ...] = (1, 2, 3)
    # Corpus: "phrases", "multi30k", a folder, or "SOURCE_FILE,TARGET_FILE".
    data: str = "phrases"
    source: str = "de"
    target: str = "en"
    lowercase: bool = False  # fold case before training, and score without case
    vocabulary: Positive = 2000  # joint BPE of both languages
    longest: Positive = 100  # training pairs with more tokens on a side are left out, and counted
    # Model.
    width: Positive = 128
    heads: Positive = 4
    kv_heads: Positive | None = None
    feed_forward: Positive = 512
    encoder_layers: Positive = 2
    decoder_layers: Positive = 2
    dropout: Fraction = 0.0
    # Training.
    epochs: Annotated[float, Field(gt=0)] = 1.3
    batch_tokens: Positive = 400  # padded tokens of a batch's longer side
    batch_sentences: Positive | None = None  # sentences of a batch, whatever their length, instead
    accumulate: Positive = 1  # batches whose gradients make one step
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3  # peak; with noam, the factor
    warmup: Annotated[float, Field(ge=0)] = 0.1  # below 1 a share of all steps, else steps
    schedule: Literal["linear", "noam"] = "linear"  # after warm-up: to zero, or 1/sqrt(step)
    label_smoothing: Fraction = 0.1
    clip: Annotated[float, Field(gt=0)] = 1.0  # norm of the gradient at most
    validations: Positive = 5  # how often validation loss is taken and a snapshot kept
    keep: Positive = 5  # snapshots kept for the average
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    device: str = "auto"
    # Scoring.
    beam: Positive = 4
    length_penalty: Annotated[float, Field(ge=0)] = 0.6
    select: Literal["average", "best"] = "average"  # of the last snapshots, or best by validation
    average: Positive = 1
    splits: tuple[str, ...] | None = None  # what is scored; None: every test split

    @field_validator("encodings", "seeds", "splits", mode="before")
    @classmethod
    def _listed(cls, value: Any, info: Any) -> Any:
        if isinstance(value, int):
            return (value,)
        if isinstance(value, str):
            value = ["".join(name.split()) for name in split_names(value)]
        if isinstance(value, (list, tuple)) and not value:
            raise ValueError("must name at least one")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        mistakes = []
        if self.width % self.heads:
            mistakes.append(f"heads must divide width, got heads={self.heads}, width={self.width}")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            mistakes.append(f"kv_heads must divide heads, got {self.kv_heads} and {self.heads}")
        if self.average > self.keep:
            mistakes.append(f"average must be at most keep={self.keep}, got {self.average}")
        for name in ("encodings", "seeds"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                mistakes.append(f"{name} must differ from one another, got {list(values)}")
        if not mistakes:
            mistakes = [said for name in self.encodings if (said := self._wrong(name))]
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    def _wrong(self, encoding: str) -> str | None:
        """Say what keeps an encoding from being built for this model, if anything does."""
        shape = self.shape(vocabulary=1)
        try:
            build_encoder_decoder(encoding, shape.stack(causal=False), shape.stack(causal=True))
        except (ValueError, TypeError) as error:
            return f"{encoding}: {error}"
        return None

    def shape(self, vocabulary: int) -> TransformerShape:
        """Sizes of the model, with the vocabulary that the corpus really gave."""
        return TransformerShape(
            vocabulary=vocabulary,
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads,
            feed_forward=self.feed_forward,
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            dropout=self.dropout,
        )

    def training(self) -> dict[str, Any]:
        """The fields that a trained cell depends on: its checkpoint is good for these alone."""
        return {k: v for k, v in self.model_dump(mode="json").items() if k not in _NOT_TRAINING}

    def decoding(self) -> dict[str, Any]:
        """The further fields that a cell's translations depend on."""
        return {name: getattr(self, name) for name in _DECODING}


_DECODING = ("beam", "length_penalty", "select", "average")
# The corpus itself is compared by its digest, wherever it lies.
_NOT_TRAINING = {*_DECODING, "preset", "encodings", "seeds", "splits", "device", "data"}

_MULTI30K: dict[str, Any] = {
    "data": "multi30k",
    "lowercase": True,
    "beam": 5,
    "length_penalty": 1.0,
    "average": 5,
}
# Small enough for half an hour on a core: at equal training time a width of 128 had a lower
# validation loss than 192, and 192 than 256 (short trials of sinusoidal, one seed).
_CPU: dict[str, Any] = {
    "encodings": ("sinusoidal", "rotary", "none"),
    "vocabulary": 4000,
    "width": 128,
    "heads": 4,
    "feed_forward": 512,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "dropout": 0.1,
    "epochs": 10,
    "batch_tokens": 1536,
    "learning_rate": 4e-3,
    "validations": 22,
    "average": 1,  # chosen on validation, as results/multi30k-cpu/tuning.json shows
    "length_penalty": 1.4,
}
# The size of Vaswani et al. 2017's base model.
_BASE: dict[str, Any] = {
    "vocabulary": 8000,
    "width": 512,
    "heads": 8,
    "feed_forward": 2048,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "dropout": 0.3,
    "epochs": 30,
    "batch_tokens": 4096,
    "learning_rate": 1e-3,
    "validations": 30,
}

#: What a preset sets; all else is as the fields of ``Config`` say.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "quick": {"seeds": (1,), "epochs": 0.4, "beam": 1},
    "multi30k-cpu": {**_MULTI30K, **_CPU},
    "multi30k-base": {**_MULTI30K, **_BASE},
    # A student report's run of the Annotated Transformer: its batches, schedule and length.
    "annotated": {
        **_MULTI30K,
        **_BASE,
        "dropout": 0.1,
        "batch_sentences": 32,
        "accumulate": 10,
        "schedule": "noam",
        "learning_rate": 1.0,
        "warmup": 3000,
    },
}


def make_config(
    preset: str = "default",
    file: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Config:
    """Build a config: the preset's fields, over them a YAML or JSON file's, over them ``settings``.

    All mistakes are named at once, a wrong field with the nearest right one: ``ValueError``.
    """
    if preset not in PRESETS:
        raise ValueError(
            f"preset must be one of {', '.join(PRESETS)}, got {preset!r}{near(preset, PRESETS)}"
        )
    fields: dict[str, Any] = {"preset": preset, **PRESETS[preset]}
    if file is not None:
        fields |= _read(file)
    fields |= dict(settings or {})
    try:
        return Config.model_validate(fields)
    except ValidationError as error:
        raise ValueError("; ".join(_said(mistake) for mistake in error.errors())) from None


def read_setting(text: str) -> tuple[str, Any]:
    """Read ``field=value`` from the command line; the value is YAML (``none`` is just a word)."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"a setting must read field=value, got {text!r}")
    try:
        return name.strip(), yaml.safe_load(value)
    except yaml.YAMLError:
        return name.strip(), value


def near(word: str, known: Any) -> str:
    """Give "; did you mean …?" where one of the known words is like this one."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _read(file: Path) -> dict[str, Any]:
    try:
        fields = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"config file {file} can't be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        what = " ".join(str(error).split())
        raise ValueError(f"config file {file} is neither YAML nor JSON: {what}") from None
    if not isinstance(fields, dict):
        raise ValueError(
            f"config file {file} must hold fields and values, got {json.dumps(fields)}"
        )
    return fields


def _said(mistake: Any) -> str:
    name = ".".join(str(part) for part in mistake["loc"][:1])
    if mistake["type"] == "extra_forbidden":
        return f"{name!r} is no field of a config{near(name, Config.model_fields)}"
    message = mistake["msg"].removeprefix("Value error, ")
    if not name:
        return str(message)
    return f"{name}: {message}, got {mistake['input']!r}"
