"""A report about a GGUF file: what llama.cpp makes of its metadata, with warnings.

The file does not state how dimensions are paired; llama.cpp knows it by the architecture. Its type
NORM pairs neighbors, NEOX pairs halves. Files of `llama` and some others have permuted weights: the
same model has the pairing `half` in transformers and `interleaved` in its GGUF file.

Source: ggml-org/llama.cpp, src/llama-model.cpp (`llama_model_rope_type`, `load_hparams`),
src/llama-context.cpp (YaRN's amplitude) and src/models/deepseek2.cpp; keys: gguf-py, constants.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import cast

from ropewalk.checks import needing
from ropewalk.rotary import axes
from ropewalk.rotary.config.diffusers_reader import CLASS_DEFAULT, WHOLE_HEAD
from ropewalk.rotary.pairing import Pairing, check_pairing
from ropewalk.rotary.scaling import Linear, LongRoPE, Scaling, UnscaledRope, YaRN
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.inspect.cautions import factor_cautions, is_missing_original
from ropewalk.tools.inspect.gguf_reader import SCALING, GgufValues, read_fields
from ropewalk.tools.inspect.rope_facts import Caution, LayerKind, ModelReport, contexts, rope_facts

INTERLEAVED = frozenset(
    """
    llama llada llama4 deci baichuan internlm2 minicpm xverse command-r cohere2 olmo
    arctic deepseek deepseek2 deepseek2-ocr plm chatglm granite granitemoe granitehybrid chameleon
    bailingmoe neo-bert smollm3 arcee ernie4_5 ernie4_5-moe mistral3 mistral4 llama-embed maincoder
    glm-dsa glm4
    """.split()  # noqa: SIM905
)
HALF = frozenset(
    """
    falcon falcon-h1 grok dbrx bert jina-bert-v3 modern-bert nomic-bert nomic-bert-moe eurobert
    stablelm bitnet qwen qwen2 dream qwen2moe qwen3 qwen3moe llada-moe rnd1 olmo2 olmoe phi2 phi3
    phimoe plamo plamo2 plamo3 gemma gemma2 gemma3 gemma3n gemma4 gemma-embedding starcoder2
    openelm gptneox codeshell orion nemotron exaone exaone4 exaone-moe minicpm3 bailingmoe2 dots1
    hunyuan-moe jais2 gpt-oss hunyuan-dense lfm2 lfm2moe smallthinker seed_oss grovemoe apertus
    minimax-m2 cogvlm pangu-embedded afmoe qwen3next mimo2 step35 glm4moe
    """.split()  # noqa: SIM905
)
SECTIONED = frozenset({"qwen2vl", "paddleocr"})  # M-RoPE in chunks; pairs are halves
ALTERNATING = frozenset({"qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"})  # interleaved axes
WITHOUT_ROPE = frozenset(
    """
    gpt2 gptj mpt refact bloom mamba mamba2 jamba jina-bert-v2 t5 t5encoder jais rwkv6 rwkv6qwen2
    rwkv7 arwkv7 wavtokenizer-dec nemotron_h nemotron_h_moe kimi-linear
    """.split()  # noqa: SIM905
)
#: Architectures whose files have permuted weights, so that the config.json says `half`.
#: Source: llama.cpp's conversion of Hugging Face models, `permute` and `_reverse_hf_permute`.
PERMUTED = frozenset(
    """
    llama deci baichuan internlm2 minicpm xverse olmo deepseek granite granitemoe smollm3 arcee
    mistral3
    """.split()  # noqa: SIM905
)
#: Architectures that llama.cpp does not rotate in every layer, which their files do not state.
SOME_LAYERS = frozenset({"cohere2", "exaone4", "exaone-moe", "smollm3", "llama4", "afmoe"})
#: Architectures whose sliding layers have theta 10,000 and no rule in llama.cpp's code, and the
#: distance between two of their full layers.
FIXED_SLIDING = {"gemma3": 6, "gemma-embedding": 6}


LLAMA_CPP = "default of llama.cpp"
DEFAULT_THETA = 10_000.0
MOST_LAYERS = 1_000
LATENT = ("deepseek2", "glm-dsa", "plm")  # the rotated part ends the head


@dataclass(frozen=True, repr=False)
class FrequencyFactors(Scaling):
    """f_i / factors[i]: the tensor `rope_freqs.weight`, in which Llama 3.1's rule is stored."""

    factors: tuple[float, ...]

    def frequencies(self, rope: UnscaledRope, length: int | None) -> list[Decimal]:
        plain = rope.frequencies()
        if len(self.factors) != len(plain):
            raise ValueError(
                f"rope_freqs.weight must have a factor for each of {len(plain)} pairs, "
                f"got {len(self.factors)}"
            )
        if not all(1e-9 <= each <= 1e9 for each in self.factors):
            raise ValueError("rope_freqs.weight must have factors from 1e-9 to 1e9")
        return [f / Decimal(each) for f, each in zip(plain, self.factors, strict=True)]


def inspect_gguf(path: Path, name: str, pairing: str | None = None) -> ModelReport:
    """Return the report of a GGUF file. Raises ValueError that names the file and the reason."""
    if pairing is not None:
        check_pairing("pairing", pairing)
    with needing(f"{name}: reading GGUF files"):
        import gguf  # noqa: F401
    fields, tensors = read_fields(path)
    try:
        values = GgufValues(fields)
        return _report(values, tensors, name, pairing)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"{name}: {error}") from None


def _report(
    values: GgufValues, tensors: Mapping[str, list[float]], name: str, pairing: str | None
) -> ModelReport:
    architecture, longest = values.architecture, values.integer("context_length") or None
    count = values.integer("block_count") or 0
    if count > MOST_LAYERS:
        raise ValueError(
            f"{values.key('block_count')} must be at most {MOST_LAYERS:,} layers, got {count:,}"
        )
    if architecture in WITHOUT_ROPE:
        raise ValueError(f"architecture {architecture!r} has no rope in llama.cpp")
    is_half = architecture in HALF | SECTIONED | ALTERNATING
    known = "half" if is_half else "interleaved" if architecture in INTERLEAVED else None
    if pairing is not None and known not in (None, pairing):
        raise ValueError(
            f"pairing must agree with architecture {architecture!r}, which llama.cpp rotates "
            f"{known!r}, got {pairing!r}; leave it out"
        )
    stated = cast(Pairing | None, known or pairing)
    rule = _rule(values, tensors, longest)
    spec = _spec(values, rule, stated or "half", sliding=False)
    ropes = {"": (spec, tuple(range(count)))}
    if (sliding := _sliding(values, spec, count)) is not None:
        full = tuple(i for i in range(count) if i not in sliding[1]) if sliding[1] else ()
        ropes = {"full_attention": (spec, full), "sliding_attention": sliding}
    kinds = []
    for layer_type, (rope, layers) in ropes.items():
        slides = layer_type == "sliding_attention"
        origins = _origins(values, "architecture" if known else "argument", sliding=slides)
        both = contexts(rope.scaling, longest)
        facts = rope_facts(rope, origins, *both, knows_pairing=stated is not None)
        types = (layer_type,) if layer_type else ()
        kinds.append(LayerKind("text", layers, types, facts, _softmax_factor(values, rope)))
    cautions = list(gguf_cautions(values, kinds, stated))
    if not is_missing_original(cautions):
        for kind in kinds:
            cautions += [] if kind.rope is None else factor_cautions(kind, kind.rope, longest)
    once = tuple(dict.fromkeys(cautions))
    length_key = None if longest is None else values.key("context_length")
    kinds.sort(key=lambda kind: kind.layers)
    return ModelReport(name, "GGUF", architecture, longest, length_key, tuple(kinds), once)


def _rule(
    values: GgufValues, tensors: Mapping[str, list[float]], longest: int | None
) -> Scaling | None:
    """Return the rule: by factors of each pair if the file has them, else by its type."""
    kind = values.text(f"{SCALING}.type")
    factor = _factor(values)
    original = values.integer(f"{SCALING}.original_context_length") or longest
    amplitude = values.number(f"{SCALING}.attn_factor")
    long, short = (tensors.get(f"rope_factors_{which}.weight") for which in ("long", "short"))
    if long and short and original:
        scale = max(1.0, (longest or original) / original)
        return LongRoPE(
            tuple(short), tuple(long), original, factor=scale, attention_factor=amplitude or 1.0
        )
    if tensors.get("rope_freqs.weight"):
        return FrequencyFactors(tuple(tensors["rope_freqs.weight"]))
    if kind in (None, "linear"):
        return Linear(factor) if factor != 1.0 else None
    if kind == "yarn":
        if original is None:
            raise ValueError(f"{values.key(f'{SCALING}.original_context_length')} must be given")
        return _yarn(values, factor, original)
    if kind in ("none", "longrope"):
        return None
    raise ValueError(
        f"{values.key(f'{SCALING}.type')} must be none, linear, yarn or longrope, got {kind!r}"
    )


def _factor(values: GgufValues) -> float:
    return values.number(f"{SCALING}.factor") or values.number("rope.scale_linear") or 1.0


def _yarn(values: GgufValues, factor: float, original: int) -> YaRN:
    """Return YaRN as ggml computes it: the band is always rounded, the amplitude is a product."""
    stated = values.number(f"{SCALING}.attn_factor") or 1.0
    multiplier = values.number(f"{SCALING}.yarn_log_multiplier") or 0.0
    amplitude = stated * _sharpening(factor, 1.0)
    if multiplier:  # DeepSeek's mscale_all_dim; its file has it times 0.1
        latent = values.architecture in LATENT
        amplitude = stated * (1.0 if latent else amplitude / _sharpening(factor, multiplier))
    return YaRN(
        factor,
        original,
        beta_fast=values.number(f"{SCALING}.yarn_beta_fast") or 32.0,
        beta_slow=values.number(f"{SCALING}.yarn_beta_slow") or 1.0,
        attention_factor=amplitude,
    )


def _sharpening(factor: float, multiplier: float) -> float:
    return 1.0 if factor <= 1 else 1.0 + 0.1 * multiplier * math.log(factor)


def _softmax_factor(values: GgufValues, spec: RotarySpec) -> float:
    """Return the factor of DeepSeek's scores, from the factor that the file states."""
    multiplier = values.number(f"{SCALING}.yarn_log_multiplier")
    has_rule = spec.scaling is not None and values.text(f"{SCALING}.type") != "none"
    if multiplier is None or values.architecture not in LATENT or not has_rule:
        return 1.0
    return _sharpening(_factor(values), multiplier / 0.1) ** 2


def _spec(
    values: GgufValues, rule: Scaling | None, pairing: Pairing, *, sliding: bool
) -> RotarySpec:
    end, is_latent = "_swa" if sliding else "", values.architecture in LATENT
    sizes = [f"attention.key_length{end}", "attention.key_length_mla", "attention.key_length"]
    head_dim = next(filter(None, map(values.integer, sizes[is_latent:])), None)
    if head_dim is None:
        head_dim = values.required("embedding_length") // values.required("attention.head_count")
    parts = (f"rope.dimension_count{end}", "rope.dimension_count")
    rotary_dim = next(filter(None, map(values.integer, parts)), head_dim)
    theta = values.number(f"rope.freq_base{end}") or values.number("rope.freq_base")
    if sliding and values.architecture in FIXED_SLIDING:
        theta = values.number("rope.freq_base_swa") or DEFAULT_THETA
    sections, pair_axes = None if sliding else values.sections(), None
    if sections is not None and sum(sections) == rotary_dim // 2:
        order = axes.interleaved if values.architecture in ALTERNATING else axes.sectioned
        pair_axes = order(sections)
    return RotarySpec(
        head_dim,
        rotary_dim,
        theta=theta or DEFAULT_THETA,
        pairing=pairing,
        start=head_dim - rotary_dim if is_latent else 0,
        scaling=rule,
        axes=pair_axes,
    )


def _sliding(
    values: GgufValues, spec: RotarySpec, count: int
) -> tuple[RotarySpec, tuple[int, ...]] | None:
    """Return the rope of sliding layers and these layers, or None if all have one rope."""
    architecture = values.architecture
    fixed = architecture in FIXED_SLIDING and values.integer("attention.sliding_window")
    differs = ("rope.freq_base_swa", "rope.dimension_count_swa", "attention.key_length_swa")
    if not fixed and all(values.get(name) is None for name in differs):
        return None
    rule = None if architecture.startswith("gemma") else spec.scaling
    pattern = values.get("attention.sliding_window_pattern")
    every = pattern if isinstance(pattern, int) and pattern else FIXED_SLIDING.get(architecture)
    layers: tuple[int, ...] = ()
    if isinstance(pattern, list):
        layers = tuple(i for i, slides in enumerate(pattern[:count]) if slides)
    elif every:
        layers = tuple(i for i in range(count) if i % every != every - 1)
    return _spec(values, rule, spec.pairing, sliding=True), layers


def _origins(values: GgufValues, pairing: str, *, sliding: bool) -> dict[str, str]:
    """Return where values came from: keys of the file, or llama.cpp."""
    names = ["rope.freq_base_swa"] if sliding else []
    if not (sliding and values.architecture in FIXED_SLIDING):
        names.append("rope.freq_base")
    theta = next((values.key(name) for name in names if values.number(name)), LLAMA_CPP)
    part, rule = "rope.dimension_count", f"{SCALING}.type"
    return {
        "theta": theta,
        "rotary_dim": WHOLE_HEAD if values.get(part) is None else values.key(part),
        "pairing": pairing,
        "scaling": CLASS_DEFAULT if values.get(rule) is None else values.key(rule),
    }


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
            "look it up in llama_model_rope_type (NORM: interleaved, NEOX: half), and state it: "
            "pairing in Python, --pairing on the command line",
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
