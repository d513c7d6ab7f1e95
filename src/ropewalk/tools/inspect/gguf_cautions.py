"""Warnings about a GGUF file's rope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ropewalk.tools.inspect.facts import Caution, LayerKind
from ropewalk.tools.inspect.gguf_pairing import PERMUTED, SOME_LAYERS
from ropewalk.tools.inspect.gguf_values import SCALING, GgufValues


def gguf_cautions(
    values: GgufValues, kinds: Sequence[LayerKind], pairing: str | None
) -> Iterator[Caution]:
    """Yield the warnings that only GGUF files have."""
    architecture = values.architecture
    if pairing is None:
        yield Caution(
            "pairing-not-stated",
            architecture,
            f"a GGUF file does not state how dimensions are paired, and the architecture "
            f"{architecture!r} is not in the table of those that llama.cpp is known to rotate",
            "look it up in llama_model_rope_type (NORM: interleaved, NEOX: half), and pass pairing",
        )
    if architecture in PERMUTED:
        yield Caution(
            "permuted-weights",
            architecture,
            "llama.cpp's conversion permutes the rows of this architecture's query and key "
            "weights: pairs are interleaved here, and half in the model's config.json",
            "undo the permutation before these weights are used with the rope of the config.json",
        )
    if values.number("rope.freq_base") is None:
        yield Caution(
            "theta-default",
            values.key("rope.freq_base"),
            "the file states no theta, so llama.cpp uses 10,000. Conversions lose this key: a "
            "model that was trained with another theta then produces nonsense",
            "compare with the model's config.json; --rope-freq-base sets it",
        )
    if architecture in SOME_LAYERS:
        yield Caution(
            "nope-layers",
            architecture,
            "llama.cpp leaves the rope out of some layers of this architecture; the file does not "
            "state which, and this report lists all layers as rotated",
            "read the config.json of the model, which states them",
        )
    yield from _scaling(values, kinds)


def _scaling(values: GgufValues, kinds: Sequence[LayerKind]) -> Iterator[Caution]:
    rules = {kind.rope.rule for kind in kinds if kind.rope is not None}
    if "YaRN" in rules and not values.integer(f"{SCALING}.original_context_length"):
        longest = values.integer("context_length") or 0
        yield Caution(
            "original-length-missing",
            values.key(f"{SCALING}.original_context_length"),
            f"the original length is missing, so llama.cpp uses context_length = {longest:,}. If "
            f"that is already the extended length, the wrong pairs are interpolated",
            "state it, or pass --yarn-orig-ctx with the length before the rule",
        )
    if "FrequencyFactors" in rules and values.text(f"{SCALING}.type") is not None:
        yield Caution(
            "unused-key",
            values.key(f"{SCALING}.type"),
            "the file has both a rule and the tensor rope_freqs.weight; llama.cpp applies both, "
            "and this report shows the tensor only",
            "compare with the model's config.json",
        )
