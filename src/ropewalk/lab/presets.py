"""Values that presets and tasks set in a config, and the fields that each task has."""

from __future__ import annotations

from typing import Any

_MULTI30K: dict[str, Any] = {
    "data": "multi30k",
    "lowercase": True,
    "beam": 5,
    "length_penalty": 1.0,
    "average": 5,
}
# Half an hour on one core. At equal training time a width of 128 had a lower validation loss than
# 192, and 192 than 256 (short trials of sinusoidal, one seed).
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
    "average": 1,  # on validation data, the mean of 3 or 5 snapshots was no better
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

#: Training pairs of the corpus phrases, unless `examples` says otherwise.
TRANSLATION_EXAMPLES = 14_000

#: Values that a preset sets; the others are the defaults of `Config`.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "quick": {"seeds": (1,), "epochs": 0.4, "beam": 1},
    "multi30k-cpu": {**_MULTI30K, **_CPU},
    "multi30k-base": {**_MULTI30K, **_BASE},
    # As a student report ran the Annotated Transformer: same batches, schedule and length.
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

#: Sizes that the generated tasks are usually trained up to. A prompt of eight times that size and
#: its answer have at most 700 tokens.
TRAINED_SIZES = {
    "copy": 10,
    "reverse": 10,
    "sort": 8,
    "addition": 3,
    "recall": 8,
    "passkey": 32,
    "count": 20,
}

#: Every task, in the order of --task all.
TASKS: tuple[str, ...] = ("translation", "masked-lm", "causal-lm", *TRAINED_SIZES)

# Fields that only some tasks have; every task has the others.
_TRANSLATION_FIELDS = {
    *("source", "target", "lowercase", "max_tokens", "encoder_layers", "decoder_layers"),
    *("batch_sentences", "label_smoothing", "beam", "length_penalty", "splits"),
}
_TEXT_FIELDS = {"data", "vocabulary"}  # translation's too
_MASKED_FIELDS = {"mask_ratio"}
_LANGUAGE_FIELDS = {"train_length", "length_multiples", "test_examples", "layers"}

_LANGUAGE: dict[str, Any] = {
    "data": "tales",
    "width": 128,
    "heads": 4,
    "feed_forward": 512,
    "layers": 3,
    "epochs": 1,
    "batch_tokens": 1024,
    "validations": 10,
    "examples": 3000,
    "test_examples": 60,
}
# From short trials of a few encodings, one seed: with four times the tokens in a batch, and so a
# quarter of the steps, most tasks were not learned in minutes.
_SEQUENCE: dict[str, Any] = {
    "width": 64,
    "heads": 4,
    "feed_forward": 256,
    "layers": 2,
    "epochs": 1,
    "batch_tokens": 512,
    "learning_rate": 2e-3,
    "validations": 10,
    "examples": 200_000,
    "test_examples": 200,
}
# Addition needs a third layer. With 64 keys, heads of 16 dimensions do not learn recall in time;
# heads of 32 do. A passkey is learned from few examples, which are long.
_SEQUENCE_TASK: dict[str, dict[str, Any]] = {
    "addition": {"layers": 3},
    "recall": {"heads": 2, "learning_rate": 1e-3, "examples": 300_000},
    "passkey": {"examples": 60_000},
}
_QUICK: dict[str, dict[str, Any]] = {
    "masked-lm": {"seeds": (1,), "examples": 600},
    "causal-lm": {"seeds": (1,), "examples": 600},
    **{task: {"seeds": (1,), "examples": 100_000, "test_examples": 100} for task in TRAINED_SIZES},
    "recall": {"seeds": (1,), "examples": 150_000, "test_examples": 100},
    "passkey": {"seeds": (1,), "examples": 30_000, "test_examples": 100},
}


def tasks_of(task: str | None) -> tuple[str | None, ...]:
    """Return the tasks that --task names; None stands for the config's task."""
    return TASKS if task == "all" else (task,)


def presets_of(task: str) -> tuple[str, ...]:
    """Return the presets that a task has."""
    return tuple(PRESETS) if task == "translation" else ("default", "quick")


def defaults(task: str, preset: str) -> dict[str, Any]:
    """Return the fields that a preset sets for a task. Raises ValueError if it lacks the preset."""
    if task == "translation":
        return {"task": task, "examples": TRANSLATION_EXAMPLES, **PRESETS[preset]}
    if preset not in presets_of(task):
        raise ValueError(f"preset must be default or quick for task {task!r}, got {preset!r}")
    fields = {"task": task, **_LANGUAGE}
    if task == "masked-lm":
        fields |= {"length_multiples": (1,)}
    elif task in TRAINED_SIZES:
        fields = {"task": task, "train_length": TRAINED_SIZES[task], **_SEQUENCE}
        fields |= _SEQUENCE_TASK.get(task, {})
    return fields | (_QUICK[task] if preset == "quick" else {})


def fields_of_other_tasks(task: str) -> set[str]:
    """Return the names of the fields that this task does not have."""
    if task == "translation":
        return _LANGUAGE_FIELDS | _MASKED_FIELDS
    others = set(_TRANSLATION_FIELDS)
    if task in TRAINED_SIZES:
        others |= _TEXT_FIELDS
    if task != "masked-lm":
        others |= _MASKED_FIELDS
    return others
