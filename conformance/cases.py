"""The cases of the vectors, by area: a rope, positions, and what the case is about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from formulas import PLAIN, Rope
from scaling_formulas import ORIGINAL

NEAR, FAR = [0, 1, 17, 4095], [-(2**31 - 1), 10_000_000, 2**31 - 2, 2**31 - 1]
FARTHER = [4_095, 131_071, 1_048_575, 10_000_000]
COARSE = [0, 1, 300, 4095]
TIME_SPACE = [[0, 5, 5, 300], [0, 6, 9, 311], [0, 7, 2, 322]]  # time, height, width
SPACE = [[0, 1, 5, 31], [0, 3, 2, 63]]  # height, width
COORDINATES = [[0.25, -0.75, 3.0, 0.0], [1.5, 0.125, -6.0, 2.25]]


class Case(NamedTuple):
    """A rope and positions: what it is, and its fields that differ from `PLAIN`.

    positions: one for each token; with several axes, a list for each axis. length: that of the
    complete sequence, if the rule depends on it. axes: the name of their order. dtype: of q and k.
    moved: the old positions and rope of keys that are rotated already. model: config and layer.
    """

    what: str
    fields: Rope = PLAIN
    positions: list[Any] = NEAR
    length: int | None = None
    axes: str = "one"
    dtype: str = "float32"
    moved: tuple[list[int], Rope] | None = None
    model: dict[str, Any] | None = None

    @property
    def rope(self) -> Rope:
        """All fields of the rope."""
        return PLAIN | self.fields


UNSCALED = {"scaling": {"rope_type": "default"}}
PAIRWISE = {"pairing": "interleaved", "write_pairing": "interleaved"}
READ_PAIRWISE = {"pairing": "interleaved", "write_pairing": "half"}
FIRST, LAST = {"rotary_dim": 8}, {"rotary_dim": 8, "start": 8}
LINEAR = {"rope_type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 4096}
DEEPSEEK = {**YARN, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.707}
GPT_OSS = {**YARN, "factor": 32.0, "truncate": False}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, ORIGINAL: 8192}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, ORIGINAL: 4096}
ALPHA = {"rope_type": "dynamic", "alpha": 4.0, "factor": 1.0}
QWEN = {"rope_type": "dynamic", "use_dynamic_ntk": True, "seq_length": 8192}
MIXED = {"rope_type": "ntk", "factor": 8.0, "mixed_b": 0.625}
LONGROPE = {"rope_type": "longrope", "factor": 32.0, ORIGINAL: 4096}
LONGROPE |= {"short_factor": [1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6]}
LONGROPE |= {"long_factor": [1.0, 2.0, 4.5, 8.0, 16.0, 24.0, 31.5, 40.0]}
P_ROPE = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "factor": 8.0}

# For each pair its axis, and its exponent e in theta^-e.
SECTIONED = "0:0/8 0:1/8 1:2/8 1:3/8 1:4/8 2:5/8 2:6/8 2:7/8"
IN_TURN = "0:0/8 1:1/8 2:2/8 0:3/8 1:4/8 2:5/8 0:6/8 0:7/8"
ERNIE = "1:0/8 2:1/8 1:2/8 2:3/8 1:4/8 2:5/8 0:6/8 0:7/8"
SECTIONED_4, IN_TURN_4 = "0:0/4 1:1/4 1:2/4 2:3/4", "0:0/4 1:1/4 2:2/4 0:3/4"
ROUND_ROBIN = "0:0/4 1:1/4 0:2/4 1:3/4"
AXIAL = "0:0/4 0:1/4 0:2/4 0:3/4 1:0/4 1:1/4 1:2/4 1:3/4"
WIDTH_FIRST = "1:0/4 1:1/4 1:2/4 1:3/4 0:0/4 0:1/4 0:2/4 0:3/4"
ALTERNATING = "0:0/4 1:0/4 0:1/4 1:1/4 0:2/4 1:2/4 0:3/4 1:3/4"
WIDTH_ALTERNATING = "1:0/4 0:0/4 1:1/4 0:1/4 1:2/4 0:2/4 1:3/4 0:3/4"
TIME_TOO = "0:0/2 0:1/2 1:0/2 1:1/2 2:0/2 2:1/2"
VIDEO = "0:0/2 0:1/2 1:0/3 1:1/3 1:2/3 2:0/3 2:1/3 2:2/3"
PIXTRAL = "0:0/8 0:2/8 0:4/8 0:6/8 1:1/8 1:3/8 1:5/8 1:7/8"


def scaled(what: str, rule: Rope, *more: Any, **fields: Any) -> Case:
    """Return a case of a scaling rule. more: positions and length."""
    return Case(what, {**fields, "scaling": rule}, *more)


def several(order: str, what: str, places: str, positions: list[Any], **fields: Any) -> Case:
    """Return a case whose positions have several axes. places: the axis and exponent of pairs."""
    axes = [[int(n) for n in pair.replace(":", "/").split("/")] for pair in places.split()]
    return Case(what, {"axes": axes, **fields}, positions, axes=order)


CASES: dict[str, dict[str, Case]] = {
    "pairings": {
        "half": Case("all dimensions, i and i + R/2 rotate together (Llama)"),
        "half-theta-5e5": Case("another theta (Llama 3)", {"theta": 5e5}),
        "half-reverse": Case("rotates the other way (nanochat)", {"reverse": True}),
        "interleaved": Case("2i and 2i + 1 rotate together (RoFormer)", PAIRWISE),
        "interleaved-to-half": Case("reads 2i and 2i + 1, writes i and i + R/2", READ_PAIRWISE),
    },
    "parts": {
        "half-first": Case("the first half of a head (Phi)", FIRST),
        "half-last": Case("the last half of a head (Hunyuan 4)", LAST),
        "interleaved-first": Case("the first half of a head (GPT-J)", PAIRWISE | FIRST),
        "interleaved-last": Case("the last half of a head (DeepSeek-V2, -V4)", PAIRWISE | LAST),
        "interleaved-to-half-last": Case(
            "reads interleaved and writes half, the last half of a head (DeepSeek-V3)",
            READ_PAIRWISE | LAST),
        "interleaved-to-half-first": Case(
            "reads interleaved and writes half, the first half of a head (GLM-5's indexer)",
            READ_PAIRWISE | FIRST),
    },
    "scaling": {
        "linear": scaled("linear interpolation", LINEAR),
        "ntk": scaled("NTK-aware: alpha is the factor (Hunyuan)", ALPHA),
        "ntk-first": scaled("its exponent has R, not the head's size", ALPHA, **FIRST),
        "mixed-ntk": scaled("every pair slows down, the slowest by s (GTE)", MIXED),
        "dynamic-short": scaled("dynamic NTK, up to the original length", DYNAMIC, NEAR, 4096),
        "dynamic-long": scaled(
            "dynamic NTK at 8 times the original length", DYNAMIC, [0, 1, 4096, 32_767], 32_768),
        "qwen-ntk": scaled(
            "Qwen-1's dynamic NTK, whose s is 7 from 2 to 4 times the original length", QWEN,
            [0, 1, 4096, 32_767], 32_768),
        "yarn": scaled("YaRN", YARN),
        "yarn-no-truncate": scaled("a band that is not rounded (gpt-oss)", GPT_OSS),
        "yarn-attention-factor": scaled(
            "YaRN with its amplitude given", YARN | {"attention_factor": 1.25}),
        "yarn-mscale": scaled(
            "YaRN with mscale and mscale_all_dim, reads interleaved and writes half (DeepSeek-V3)",
            DEEPSEEK, **READ_PAIRWISE, **LAST),
        "longrope-short": scaled("LongRoPE up to the original length", LONGROPE, NEAR, 4096),
        "longrope-long": scaled(
            "LongRoPE beyond the original length", LONGROPE, [0, 1, 4096, 131_071], 131_072),
        "llama3": scaled("Llama 3.1's rule", LLAMA3, theta=5e5),
        "proportional": scaled(
            "p-RoPE: a quarter of the pairs, 8 times slower (Gemma 4)", P_ROPE, theta=1e6),
        "yarn-betas": scaled(
            "YaRN with another band", YARN | {"beta_fast": 16.0, "beta_slow": 2.0}),
        "llama3-no-band": scaled(
            "Llama 3.1's rule with both factors 1, as in Llama 4 Scout's file",
            LLAMA3 | {"high_freq_factor": 1.0}, theta=5e5),
    },
    "axes": {
        "mrope-sectioned": several("sectioned", "M-RoPE (Qwen2-VL)", SECTIONED, TIME_SPACE),
        "mrope-sectioned-yarn": several(
            "sectioned", "M-RoPE with YaRN", SECTIONED, TIME_SPACE, scaling=YARN),
        "mrope-sectioned-first": several(
            "sectioned", "the first half of a head (GLM-4.5V)", SECTIONED_4, TIME_SPACE, **FIRST),
        "mrope-sectioned-interleaved-first": several(
            "sectioned", "2i and 2i + 1 (GLM-4.1V)", SECTIONED_4, TIME_SPACE, **PAIRWISE, **FIRST),
        "mrope-interleaved": several(
            "interleaved", "axes in turn (Qwen3-VL)", IN_TURN, TIME_SPACE, theta=5e6),
        "mrope-interleaved-first": several(
            "interleaved", "axes in turn, half a head (Qwen3.5)", IN_TURN_4, TIME_SPACE, **FIRST),
        "mrope-ernie": several(
            "ernie", "height and width in turn, then time (Ernie 4.5-VL)", ERNIE, TIME_SPACE,
            **PAIRWISE),
        "mrope-round-robin-first": several(
            "round robin", "two axes in turn, one set of frequencies", ROUND_ROBIN, SPACE, **FIRST),
        "axial": several("axial", "height, then width (Qwen2-VL's vision)", AXIAL, SPACE),
        "axial-interleaved": several(
            "axial", "height, then width, 2i and 2i + 1 (SAM 2)", AXIAL, SPACE, **PAIRWISE),
        "axial-width-first": several("width first", "width, then height", WIDTH_FIRST, SPACE),
        "axial-width-first-interleaved": several(
            "width first", "width, then height (Llama 4's vision)", WIDTH_FIRST, SPACE, **PAIRWISE),
        "axial-width-first-alternating": several(
            "width first, alternating", "width, height in turn (Kimi)", WIDTH_ALTERNATING, SPACE),
        "axial-alternating-interleaved": several(
            "alternating", "height, width in turn (EfficientLoFTR)", ALTERNATING, SPACE,
            **PAIRWISE),
        "axial-time-too": several(
            "time too", "time, height, width (MiniMax-M3)", TIME_TOO, TIME_SPACE, rotary_dim=12),
        "axial-pixtral": several("pixtral", "shared frequencies (Pixtral)", PIXTRAL, SPACE),
        "axial-blocks": several(
            "blocks", "pairs within each half (Gemma 4)", AXIAL, SPACE, theta=100.0, blocks=[8, 8]),
        "axial-continuous": several(
            "axial", "coordinates (DINOv3)", AXIAL, COORDINATES, theta=100.0, continuous=True),
        "axial-continuous-interleaved": several(
            "axial", "coordinates, 2i and 2i + 1 (SAM 3)", AXIAL, COORDINATES, **PAIRWISE,
            continuous=True),
        "video": several("axial", "time, height, width (Wan, Flux)", VIDEO, TIME_SPACE, **PAIRWISE),
        "video-rounds": several(
            "axial", "theta 256 and text behind the image (HunyuanVideo)", VIDEO, TIME_SPACE,
            theta=256.0, **PAIRWISE),
    },
    "positions": {
        "packed": Case("documents of 3 and 2 tokens in one sequence", {}, [0, 1, 2, 0, 1]),
        "padded": Case("two tokens of padding on the left, at position 0", {}, [0, 0, 0, 1, 2]),
        "one-token": Case("decoding one token after 37 that are cached", {}, [37]),
        "chunk": Case("a chunk of 3 tokens after 20 that are cached", {}, [20, 21, 22]),
        "one-token-interleaved": Case("decoding one token after 1,024", PAIRWISE, [1024]),
        "chunk-yarn": scaled("a chunk under YaRN, after 4,100", YARN, [4100, 4101, 4102]),
        "decreasing": Case("positions in any order", {}, [9, 4, 4, 0]),
    },
    "half-precision": {
        "bfloat16": Case("q and k in bfloat16", {}, COARSE, dtype="bfloat16"),
        "bfloat16-interleaved": Case("q and k in bfloat16", PAIRWISE, COARSE, dtype="bfloat16"),
        "bfloat16-theta-5e5": Case(
            "q and k in bfloat16", {"theta": 5e5}, [257, 259, 1001, 8191], dtype="bfloat16"),
        "float16": Case("q and k in float16", {}, COARSE, dtype="float16"),
        "float16-yarn": Case(
            "q and k in float16, with an amplitude", {"scaling": YARN}, COARSE, dtype="float16"),
    },
    "cache": {
        "shift": Case(
            "cached keys move back by 2,048", {}, [0, 5, 100], moved=([2048, 2053, 2148], {})),
        "shift-interleaved": Case(
            "cached keys move back by 2,048", PAIRWISE, [0, 5, 100],
            moved=([2048, 2053, 2148], {})),
        "shift-yarn": Case(
            "cached keys with an amplitude move forward by 7", {"scaling": YARN}, [7, 12, 107],
            moved=([0, 5, 100], {})),
        "to-yarn": Case(
            "cached keys get another rule at their positions", {"scaling": YARN}, [0, 5, 100],
            moved=([0, 5, 100], UNSCALED)),
        "dynamic-grows": Case(
            "cached keys of dynamic NTK as the sequence grows from 4,096 to 16,384",
            {"scaling": DYNAMIC}, [1, 100, 4000], 16_384, moved=([1, 100, 4000], UNSCALED)),
    },
    "far": {
        "half-far": Case("positions up to 2^31 - 1", {}, FAR),
        "interleaved-far": Case("positions up to 2^31 - 1", PAIRWISE, FAR),
        "yarn-far": scaled("YaRN up to position 2^31 - 1", YARN, FAR),
        "half-farther": Case("positions up to ten million", {}, FARTHER),
        "half-theta-5e5-farther": Case(
            "positions up to ten million (Llama 3)", {"theta": 5e5}, FARTHER),
        "llama3-farther": scaled(
            "Llama 3.1's rule, up to ten million", LLAMA3, FARTHER, theta=5e5),
    },
}  # fmt: skip


def _models() -> dict[str, Case]:
    """Return the cases of published models: what a config.json means for one layer."""
    cases = {}
    path = Path(__file__).parent / "models.json"
    for name, facts in json.loads(path.read_text("utf-8")).items():
        positions: list[Any] = [1000]
        if facts["rope"]["axes"] is not None:
            count = 1 + max(axis for axis, _, _ in facts["rope"]["axes"])
            positions = [[1000 + 10 * axis] for axis in range(count)]
        model = {key: facts[key] for key in ("source", "layer", "config")}
        what = f"layer {facts['layer']} of its config.json"
        cases[name] = Case(what, facts["rope"], positions, facts["length"], model=model)
    return cases


CASES["models"] = _models()
