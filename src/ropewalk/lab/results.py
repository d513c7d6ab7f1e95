"""The results of a comparison, typed: what `compare`, `tune` and `publish` write and others read.

`results.json` of a run and of a published folder has one `Results`, which has an `EncodingResults`
for each encoding, which has a `CellResults` for each seed. A field that a file lacks is None here
and is lacking again when the results are written. Beside it, a run has `examples.json` (`Examples`)
and `attention.json` (`AttentionMaps`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    SkipValidation,
    ValidationError,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from ropewalk.files import (
    MOST_DATA_BYTES,
    MOST_JSON_BYTES,
    WAY_OUT,
    Facts,
    read_checked_json,
    shown_path,
)
from ropewalk.lab.cells import Cell
from ropewalk.lab.config import Config, encodings_unchecked
from ropewalk.lab.published import whole_results

#: A number of a JSON file; one that is written as an integer stays one.
Number = int | float
#: Values of a sweep's fields, by name.
SettingValues = dict[str, Any]
#: Statistics of the items of a split by name: a number for each item, or a list of such columns.
Statistics = Annotated[dict[str, list[Any]], SkipValidation]
#: Weights by layer, head, query and key.
Weights = Annotated[list[list[list[list[float]]]], SkipValidation]


class _Facts(BaseModel):
    """Typed content of a JSON object."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, ser_json_inf_nan="constants"
    )

    def as_json(self) -> Facts:
        """Return the content for JSON: the fields that were read or given, in the order here."""
        return self.model_dump(mode="json", exclude_unset=True, by_alias=True)

    def with_changes(self, **fields: Any) -> Self:
        """Return this with other values of some fields."""
        return self.model_copy(update=fields)

    def without(self, *names: str) -> Self:
        """Return this without some fields."""
        kept = {name: getattr(self, name) for name in self.model_fields_set if name not in names}
        return self.model_construct(**kept)


T = TypeVar("T", bound=_Facts)


class Spread(_Facts):
    """A value of each seed, and their mean: None if a seed has no value."""

    mean: Number | None
    values: tuple[Number | None, ...]


class Point(_Facts):
    """A point of a loss curve. gradient: norm before clipping, in curves of training alone."""

    step: int
    seconds: Number
    loss: Number | None
    gradient: Number | None = None


class BinScore(_Facts):
    """BLEU of the sentences of one range of lengths."""

    bleu: Number


class LengthBin(_Facts):
    """A range of sentence lengths in words, both ends included."""

    first: int = Field(alias="from")
    last: int = Field(alias="to")
    sentences: int


class _ByMetric(_Facts):
    """Facts of a split: a value for each of the task's metrics under its key, and more fields."""

    model_config = ConfigDict(extra="allow")

    @model_serializer(mode="wrap")
    def _metrics_first(self, as_facts: SerializerFunctionWrapHandler) -> Facts:
        facts: Facts = as_facts(self)
        return {name: facts[name] for name in self.__pydantic_extra__ or {}} | facts


class SplitScores(_ByMetric):
    """The scores of a cell on a split.

    sentence_bleu, by_length: BLEU of each sentence, and of each range of lengths.
    statistics: what the scores are computed from, by item.
    hypotheses_sha256: digest of the file of translations.
    no_result: why there is no score; then there is nothing else.
    """

    __pydantic_extra__: dict[str, Number | None]

    no_result: str | None = None
    decode_seconds: Number | None = None
    sentence_bleu: Annotated[list[float] | None, SkipValidation] = None
    statistics: Statistics | None = None
    by_length: tuple[BinScore, ...] | None = None
    hypotheses_sha256: str | None = None

    def score(self, key: str) -> float | None:
        """Return the score under a metric's key, or None without a result."""
        return (self.__pydantic_extra__ or {}).get(key)


class Verdict(_Facts):
    """The test of an encoding's score against another's, as `scoring.significance` describes it.

    margin: the largest difference that does not matter.
    """

    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    margin: float
    verdict: Literal["better", "worse", "equal", "open"]

    @property
    def is_difference(self) -> bool:
        """Whether a difference is shown."""
        return self.verdict in ("better", "worse")


class SplitSummary(_ByMetric):
    """An encoding's scores on a split over its seeds, and their tests against other encodings.

    no_result: why a seed, or each, has no score.
    """

    __pydantic_extra__: dict[str, Spread]

    no_result: str | None = None
    versus_first: Verdict | None = None
    versus: dict[str, Verdict | None] = Field(default_factory=dict)

    def spread(self, key: str) -> Spread:
        """Return the scores under a metric's key."""
        return (self.__pydantic_extra__ or {})[key]


class CellResults(_Facts):
    """One training: how it ended, its cost, its loss curves and its scores by split."""

    seed: int
    status: Literal["finished", "diverged"]
    steps: int
    train_seconds: Number
    tokens_per_s: Number
    peak_memory_bytes: int | None
    validation_loss: Number | None
    training: tuple[Point, ...] = ()
    validation: tuple[Point, ...] = ()
    scores: dict[str, SplitScores]


class Trial(_Facts):
    """A training with some settings of a sweep. validation_loss: None if it diverged."""

    settings: SettingValues
    seed: int
    status: str
    validation_loss: Number | None


class DecodingTrial(_Facts):
    """Validation scores with some decoding settings: lists over seeds, and means as `mean_…`."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number | tuple[Number | None, ...] | None]

    settings: SettingValues

    def mean(self, key: str) -> float | None:
        """Return the mean of a score over the seeds that have it."""
        mean = (self.__pydantic_extra__ or {}).get(f"mean_{key}")
        assert not isinstance(mean, tuple)
        return mean

    def values(self, key: str) -> tuple[float | None, ...]:
        """Return a score of each seed."""
        values = (self.__pydantic_extra__ or {})[key]
        assert isinstance(values, tuple)
        return values


class Attention(_Facts):
    """Self-attention of one seed's model on the example of this index."""

    seed: int
    index: int
    weights: Weights


class EncodingResults(_Facts):
    """The results of one encoding: a cell for each seed, and what summarizes them.

    settings, trials, decoding_trials: with a sweep, the settings chosen for this encoding, and the
    trials that they were chosen from.
    """

    name: str
    slug: str = Field(pattern=r"^[\w.+-]+$")
    settings: SettingValues | None = None
    trials: tuple[Trial, ...] = ()
    decoding_trials: tuple[DecodingTrial, ...] = ()
    parameters: int
    cells: tuple[CellResults, ...] = Field(min_length=1)
    summary: dict[str, SplitSummary]
    validation_loss: Spread
    tokens_per_s: Spread
    peak_memory_bytes: Spread
    extra_parameters: int
    attention: Attention | None = None

    def cell(self, seed: int) -> Cell:
        """Return the cell of this encoding with a seed."""
        return Cell(self.name, seed, tuple((self.settings or {}).items()))

    @property
    def has_diverged(self) -> bool:
        """Whether the first seed's training diverged: then there is no model to show."""
        return self.cells[0].status == "diverged"


class MetricFacts(_Facts):
    """A score as results name it; the fields are those of `lab.tasks.Metric`."""

    key: str
    name: str
    unit: str
    higher_is_better: bool
    digits: int
    floor: Number | None
    solved: Number | None


class Seen(_Facts):
    """How many sentences of a split, and pairs of them, are also in the training data."""

    source: int
    target: int
    pairs: int


class LongestPair(_Facts):
    """Most tokens of a training sentence on either side."""

    source: int
    target: int


class TranslationCorpus(_Facts):
    """The corpus of a translation: languages, sizes by split, overlap with training."""

    name: str
    source: str
    target: str
    pairs: dict[str, int]
    seen_in_training: dict[str, Seen]
    notes: tuple[str, ...]
    left_out: int
    vocabulary: int
    longest_in_training: LongestPair


class TaskCorpus(_Facts):
    """The data of another task: facts with their names, in words."""

    name: str
    facts: tuple[tuple[str, str], ...]


class Lengths(_Facts):
    """The scored lengths: of the trained examples, and of each split."""

    unit: str
    trained: int
    of: dict[str, int]


class Machine(_Facts):
    """What the cells ran on, and how."""

    processor: str
    cores: int
    threads_per_cell: int
    device: str
    precision: str
    cells_at_once: int
    launchers: tuple[str, ...] | None = None
    processes_per_cell: int | None = None


class Part(_Facts):
    """The conditions of some cells, and which these are: encoding -> seeds."""

    ropewalk: str
    commit: str | None
    versions: dict[str, str]
    machine: Machine
    command: str
    note: str | None
    started: str
    sittings: int
    duration_s: Number
    cells: dict[str, tuple[int, ...]]


#: The fields that each part of results has of its own.
CONDITIONS = tuple(name for name in Part.model_fields if name != "cells")


class Results(_Facts):
    """The results of a comparison.

    against: the encodings that each other one was tested against, besides the first.
    documents: by split, the document of each item; items of one document are added up for tests.
    tested_later: those of them that were tested after the run, from the saved scores.
    parts: with cells of several runs, the conditions of each.
    """

    ropewalk: str
    commit: str | None
    versions: dict[str, str]
    machine: Machine
    config: Config
    task: str
    metrics: tuple[MetricFacts, ...] = Field(min_length=1)
    tested_metric: str
    about: str | None = None
    corpus: TranslationCorpus | TaskCorpus
    signatures: dict[str, str] = Field(default_factory=dict)
    splits: tuple[str, ...] = Field(min_length=1)
    lengths: Lengths | None = None
    share_beyond_training: dict[str, Number] = Field(default_factory=dict)
    length_bins: dict[str, tuple[LengthBin, ...]] = Field(default_factory=dict)
    documents: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    encodings: tuple[EncodingResults, ...] = Field(min_length=1)
    against: tuple[str, ...]
    tested_later: tuple[str, ...] = ()
    command: str
    note: str | None
    started: str
    sittings: int
    duration_s: Number
    data_digest: str | None = None
    parts: tuple[Part, ...] = ()

    @field_validator("config", mode="plain")
    @classmethod
    def _read_config(cls, config: Any) -> Config:
        if isinstance(config, Mapping) and not config.keys() >= {"encodings", "seeds"}:
            raise ValueError("config must state the encodings and the seeds of the run")
        with encodings_unchecked():  # code that it imports is not needed to read results
            return Config.model_validate(config)

    @field_serializer("config")
    def _config_facts(self, config: Config) -> Facts:
        return config.facts()

    @property
    def headline_metric(self) -> MetricFacts:
        """The score that the encodings are judged by."""
        return self.metrics[0]

    @property
    def tested(self) -> MetricFacts:
        """The score whose differences are tested: the headline, or the score it comes from."""
        return next(metric for metric in self.metrics if metric.key == self.tested_metric)

    @property
    def is_translation(self) -> bool:
        """Whether the task is translation, which has languages and sentence lengths."""
        return self.task == "translation"

    def lacking_seeds(self) -> dict[str, list[int]]:
        """Return the seeds that an encoding lacks and another has; only encodings that lack some.

        Such encodings are not tested.
        """
        seeds = {row.name: {cell.seed for cell in row.cells} for row in self.encodings}
        every = set().union(*seeds.values())
        return {name: sorted(every - own) for name, own in seeds.items() if own != every}

    def row(self, name: str) -> EncodingResults:
        """Return the results of an encoding."""
        return next(row for row in self.encodings if row.name == name)


class ExampleSentence(_Facts):
    """An input, the right output, and the output of each encoding by slug."""

    index: int
    split: str | None = None
    source: str
    reference: str
    hypotheses: dict[str, str]


class Examples(_Facts):
    """Examples chosen by a rule, with the outputs of every encoding's first seed.

    terms: what inputs and outputs are called, for other tasks than translation.
    """

    split: str
    rule: str
    terms: tuple[str, str] | None = None
    sentences: tuple[ExampleSentence, ...]


class MappedSentence(_Facts):
    """A sentence with attention maps. target: what a translation's decoder reads."""

    index: int
    source: str
    target: str | None = None


class AttentionMap(_Facts):
    """The weights of every layer and head at one site, with the tokens of queries and keys."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: Weights


class EncodingMaps(_Facts):
    """The maps of one seed's model: for each sentence, site -> map."""

    seed: int
    sentences: tuple[dict[str, AttentionMap], ...]


class AttentionMaps(_Facts):
    """Attention over sentences chosen by a rule, by the slug of each encoding with a model."""

    rule: str
    sentences: tuple[MappedSentence, ...]
    encodings: dict[str, EncodingMaps]

    @model_validator(mode="after")
    def _every_sentence_has_maps(self) -> Self:
        if any(len(maps.sentences) != len(self.sentences) for maps in self.encodings.values()):
            raise ValueError("every encoding must have the maps of every sentence")
        return self


def read_results(folder: Path) -> Results:
    """Return the full results of a run or a published folder.

    The bulk of a published folder is merged into its `results.json`. Raises ValueError, naming the
    file, if one is missing, damaged or of another form.
    """
    path = folder / "results.json"
    return _typed(Results, path, whole_results(folder, read_summary(path)))


def read_examples(run: Path) -> Examples:
    """Return the examples of a run. Raises ValueError, naming the file, as `read_results`."""
    path = run / "examples.json"
    return _typed(Examples, path, read_summary(path, "sentences"))


def read_attention(run: Path) -> AttentionMaps:
    """Return the attention maps of a run. Raises ValueError, naming the file."""
    path = run / "attention.json"
    facts = read_summary(path, "sentences", most_bytes=MOST_DATA_BYTES)
    return _typed(AttentionMaps, path, facts)


def read_summary(path: Path, *needed: str, most_bytes: int = MOST_JSON_BYTES) -> Facts:
    """Return a JSON file of a finished run.

    In a published folder these files have no checksum: they are under version control and are
    merged by people.
    """
    published = not os.path.exists(path.parent / "config.json")
    return read_checked_json(path, *needed, most_bytes=most_bytes, unchecked=published)


def _typed(kind: type[T], path: Path, facts: Facts) -> T:
    try:
        return kind.model_validate(facts)
    except ValidationError as error:
        mistake = error.errors(include_url=False)[0]
        place = ".".join(map(str, mistake["loc"]))
        raise ValueError(
            f"{shown_path(path)} is not as ropewalk writes it: {place}: {mistake['msg']}; {WAY_OUT}"
        ) from None
