"""Exactness: how wrong cos, sin, rotated vectors and scores are at far positions, ours and others'.

The reference is mpmath, which comes with torch. Ropes of other libraries are driven where they are
installed; where transformers is not, its formulas are written out. See README.md beside this.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mpmath
import torch
from measuring import FOLDER, conditions, table
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec, scaling
from ropewalk.figures.palette import LIGHT_PAGE, style
from ropewalk.figures.static import png
from ropewalk.lab.checkpoint import write_json
from ropewalk.machine import cores

HEAD_DIM = 128
THETAS = (10_000.0, 500_000.0)
ENDS = (4_096, 131_072, 1_000_000, 10_000_000)
FARTHEST = 2**31 - 1
TABLE_CLAIM, OUTPUT_CLAIM = 1e-7, 1e-6
LARGEST_TABLE = 131_072  # positions, for those who build their tables from 0 on
PEERS = {  # and the module of each that is driven
    "transformers": "transformers.models.llama.modeling_llama",
    "rotary-embedding-torch": "rotary_embedding_torch",
    "x-transformers": "x_transformers.x_transformers",
    "torchtune": "torchtune.modules",
}

Tables = tuple[Tensor, Tensor]  # cos and sin, (S, R/2)


@dataclass(frozen=True)
class Rope:
    """A rope to measure: its cos and sin at positions (S,), and how it turns (1, H, S, D)."""

    tables: Callable[[Tensor], Tables]
    turn: Callable[[Tensor, Tensor], Tensor]  # x, positions
    pairing: str
    longest: int = FARTHEST + 1


# The ropes: each function makes one from a theta, or gives None where it has no such theta


def ropewalk(theta: float) -> Rope:
    """Ours."""
    rope = RotaryEmbedding(RotarySpec(HEAD_DIM, theta=theta))
    return Rope(rope.tables, lambda x, positions: rope.rotate(x, positions), "half")


def float64_product(theta: float) -> Rope:
    """The product in float64, and cos and sin rounded to float32."""

    def tables(positions: Tensor) -> Tables:
        exponents = torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM
        angle = positions.double()[:, None] * theta**-exponents
        return angle.cos().float(), angle.sin().float()

    return with_tables(tables, "half")


def llama_written_out(
    theta: float, buffer: torch.dtype = torch.float32, tables: torch.dtype = torch.float32
) -> Rope:
    """What `llama` computes, without transformers."""
    inv_freq = float32_frequencies(theta).to(buffer).float()

    def of(positions: Tensor) -> Tables:
        angle = positions[:, None].float() * inv_freq
        return angle.cos().to(tables), angle.sin().to(tables)

    return with_tables(of, "half")


def llama(
    theta: float, buffer: torch.dtype = torch.float32, tables: torch.dtype = torch.float32
) -> Rope:
    """transformers' LlamaRotaryEmbedding in a model cast to `buffer`, given q of dtype `tables`."""
    if installed("transformers") is None:
        return llama_written_out(theta, buffer, tables)
    source = import_module(PEERS["transformers"])
    config = source.LlamaConfig(
        vocab_size=8,
        hidden_size=HEAD_DIM,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        rope_theta=theta,
    )
    rope = source.LlamaModel(config).to(buffer).rotary_emb
    like = torch.empty(0, dtype=tables)

    def of(positions: Tensor) -> Tables:
        cos, sin = (t[0, :, : HEAD_DIM // 2] for t in rope(like, positions[None]))
        return cos, sin

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        turned, _ = source.apply_rotary_pos_emb(x, x, *rope(like, positions[None]))
        return turned

    return Rope(of, turn, "half")


def llama_bfloat16_tables(theta: float) -> Rope:
    """A model loaded in bfloat16: frequencies stay float32, cos and sin come in q's dtype."""
    return llama(theta, tables=torch.bfloat16)


def llama_bfloat16_buffer(theta: float) -> Rope:
    """The same after `model.bfloat16()`, which casts the buffer of frequencies too."""
    return llama(theta, torch.bfloat16, torch.bfloat16)


def bfloat16_positions(theta: float) -> Rope:
    """Positions in the dtype of the frequencies, after `.bfloat16()`: as in x-transformers."""
    inv_freq = float32_frequencies(theta).bfloat16()

    def tables(positions: Tensor) -> Tables:
        angle = positions.bfloat16()[:, None] * inv_freq
        return angle.cos(), angle.sin()

    return with_tables(tables, "half")


def gptj(theta: float) -> Rope | None:
    """GPT-J's create_sinusoidal_positions, written out: its own table would start from 0."""
    if theta != 10_000:
        return None  # it has no other
    inv_freq = 1.0 / (10_000 ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.int64) / HEAD_DIM))

    def tables(positions: Tensor) -> Tables:
        angle = positions.float()[:, None] * inv_freq
        return angle.cos(), angle.sin()

    return with_tables(tables, "interleaved")


def meta(theta: float) -> Rope:
    """Meta's precompute_freqs_cis and apply_rotary_emb, written out for any positions."""
    freqs = float32_frequencies(theta)

    def freqs_cis(positions: Tensor) -> Tensor:
        outer = torch.outer(positions.float(), freqs)
        return torch.polar(torch.ones_like(outer), outer)

    def tables(positions: Tensor) -> Tables:
        cis = freqs_cis(positions)
        return cis.real, cis.imag

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * freqs_cis(positions)).flatten(-2).type_as(x)

    return Rope(tables, turn, "interleaved")


def rotary_embedding_torch(theta: float) -> Rope:
    """lucidrains' rotary-embedding-torch."""
    source = import_module(PEERS["rotary-embedding-torch"])
    rope = source.RotaryEmbedding(HEAD_DIM, theta=theta)

    def tables(positions: Tensor) -> Tables:
        angle = rope(positions)[:, ::2].detach()
        return angle.cos(), angle.sin()

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        return rope.rotate_queries_or_keys(x, offset=int(positions[0])).detach()

    return Rope(tables, turn, "interleaved")


def x_transformers(theta: float) -> Rope:
    """lucidrains' x-transformers."""
    source = import_module(PEERS["x-transformers"])
    rope = source.RotaryEmbedding(HEAD_DIM, base=theta)

    def tables(positions: Tensor) -> Tables:
        angle = rope(positions)[0][0, :, ::2]
        return angle.cos(), angle.sin()

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        return source.apply_rotary_pos_emb(x, rope(positions)[0])

    return Rope(tables, turn, "interleaved")


def torchtune(theta: float) -> Rope:
    """torchtune's RotaryPositionalEmbeddings, whose table starts from 0."""
    source = import_module(PEERS["torchtune"])
    rope = source.RotaryPositionalEmbeddings(HEAD_DIM, LARGEST_TABLE, int(theta))

    def tables(positions: Tensor) -> Tables:
        cos, sin = rope.cache[positions].unbind(-1)
        return cos, sin

    def turn(x: Tensor, positions: Tensor) -> Tensor:
        return rope(x.transpose(1, 2), input_pos=positions[None]).transpose(1, 2)

    return Rope(tables, turn, "interleaved", LARGEST_TABLE)


ROPES: dict[str, Callable[[float], Rope | None]] = {
    "ropewalk": ropewalk,
    "float64 product": float64_product,
    "transformers, Llama": llama,
    "GPT-J": gptj,
    "Meta, freqs_cis": meta,
    "rotary-embedding-torch": rotary_embedding_torch,
    "x-transformers": x_transformers,
    "torchtune": torchtune,
    "Llama, bfloat16 tables": llama_bfloat16_tables,
    "Llama, .bfloat16()": llama_bfloat16_buffer,
    "bfloat16 positions": bfloat16_positions,
}
DRAWN = (  # the other float32 ropes fall on the line of transformers'
    "ropewalk",
    "transformers, Llama",
    "float64 product",
    "Llama, bfloat16 tables",
    "Llama, .bfloat16()",
)


def with_tables(tables: Callable[[Tensor], Tables], pairing: str) -> Rope:
    """Make a rope of tables that turns in the dtype that x and they promote to."""
    return Rope(tables, lambda x, positions: turned(x, *tables(positions), pairing), pairing)


def float32_frequencies(theta: float) -> Tensor:
    """The frequencies in float32, as most write them."""
    return 1.0 / (theta ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))


def installed(library: str) -> str | None:
    """Give the version of a library that is installed and can be imported."""
    try:
        import_module(PEERS[library])
        return version(library)
    except Exception:  # beside other versions than it knows, an import may fail in any way
        return None


# The reference


def exact(frequencies: Iterable[Any], positions: Tensor) -> Tables:
    """cos and sin of positions · frequencies from 50 digits, rounded once to float64."""
    frequencies = list(frequencies)
    with mpmath.workdps(50):
        both = [[mpmath.cos_sin(m * f) for f in frequencies] for m in positions.tolist()]
        numbers = [[[float(value) for value in pair] for pair in row] for row in both]
    cos, sin = torch.tensor(numbers, dtype=torch.float64).unbind(-1)
    return cos, sin


def exact_frequencies(theta: float, rule: Any = None, length: int | None = None) -> list[Any]:
    """theta^(-2i/R) in 50 digits, and what a rule makes of them after its source."""
    with mpmath.workdps(50):
        base = mpmath.mpf(theta)
        if rule is not None:
            return SOURCES[type(rule)](rule, base, length)
        return plain(base)


def plain(base: Any) -> list[Any]:
    """base^(-2i/R)."""
    return [base ** (-mpmath.mpf(2 * i) / HEAD_DIM) for i in range(HEAD_DIM // 2)]


def linear(rule: Any, base: Any, length: int | None) -> list[Any]:
    """arXiv 2306.15595, eq. 3."""
    return [f / mpmath.mpf(rule.factor) for f in plain(base)]


def ntk(rule: Any, base: Any, length: int | None) -> list[Any]:
    """arXiv 2309.00071, eq. 15 and 16; the dynamic one as in transformers."""
    s = mpmath.mpf(rule.factor)
    if isinstance(rule, scaling.DynamicNTK):
        s = s * max(length or 0, rule.original_length) / rule.original_length - (s - 1)
    return plain(base * s ** (mpmath.mpf(HEAD_DIM) / (HEAD_DIM - 2)))


def yarn(rule: Any, base: Any, length: int | None) -> list[Any]:
    """arXiv 2309.00071, with the band as jquesnelle/yarn finds it."""

    def pair(turns: float) -> Any:
        wavelength = mpmath.mpf(rule.original_length) / (2 * mpmath.pi * mpmath.mpf(turns))
        return HEAD_DIM * mpmath.log(wavelength) / (2 * mpmath.log(base))

    low, high = pair(rule.beta_fast), pair(rule.beta_slow)
    if rule.truncate:
        low, high = mpmath.floor(low), mpmath.ceil(high)
    low, high = max(low, 0), min(high, HEAD_DIM - 1)
    slow = [min(max((i - low) / (high - low), 0), 1) for i in range(HEAD_DIM // 2)]
    s = mpmath.mpf(rule.factor)
    return [f * (1 - g) + f / s * g for f, g in zip(plain(base), slow, strict=True)]


def longrope(rule: Any, base: Any, length: int | None) -> list[Any]:
    """modeling_phi3.py: beyond the original length, the long list."""
    long = (length or 0) > rule.original_length
    divisors = rule.long_factor if long else rule.short_factor
    return [f / mpmath.mpf(d) for f, d in zip(plain(base), divisors, strict=True)]


def llama3(rule: Any, base: Any, length: int | None) -> list[Any]:
    """meta-llama/llama-models, apply_scaling."""
    low, high = mpmath.mpf(rule.low_freq_factor), mpmath.mpf(rule.high_freq_factor)
    scaled = []
    for f in plain(base):
        turns = rule.original_length * f / (2 * mpmath.pi)
        smooth = min(max((turns - low) / (high - low), 0), 1)
        scaled.append((1 - smooth) * f / mpmath.mpf(rule.factor) + smooth * f)
    return scaled


def proportional(rule: Any, base: Any, length: int | None) -> list[Any]:
    """arXiv 2410.06205, section 5."""
    turning = int(rule.fraction * HEAD_DIM // 2)
    kept = [f / mpmath.mpf(rule.factor) for f in plain(base)[:turning]]
    return kept + [mpmath.mpf(0)] * (HEAD_DIM // 2 - turning)


SOURCES: dict[type[scaling.Scaling], Callable[[Any, Any, int | None], list[Any]]] = {
    scaling.Linear: linear,
    scaling.NTKAware: ntk,
    scaling.DynamicNTK: ntk,
    scaling.YaRN: yarn,
    scaling.LongRoPE: longrope,
    scaling.Llama3: llama3,
    scaling.Proportional: proportional,
}
SHORT, LONG = (tuple(1 + i * step for i in range(HEAD_DIM // 2)) for step in (0.05, 1.0))
RULES: list[tuple[float, scaling.Scaling | None, int | None]] = [  # theta, rule, length served
    (10_000.0, None, None),
    (500_000.0, None, None),
    (10_000.0, scaling.Linear(4.0), None),
    (10_000.0, scaling.NTKAware(4.0), None),
    (10_000.0, scaling.DynamicNTK(2.0, 4_096), 32_768),
    (10_000.0, scaling.YaRN(40.0, 4_096, mscale=1.0, mscale_all_dim=0.707), None),
    (150_000.0, scaling.YaRN(32.0, 4_096, truncate=False), None),
    (10_000.0, scaling.LongRoPE(SHORT, LONG, 4_096, factor=32.0), 131_072),
    (500_000.0, scaling.Llama3(8.0, 1.0, 4.0, 8_192), None),
    (1_000_000.0, scaling.Proportional(0.25, 8.0), None),
]


# Measures


def turned(x: Tensor, cos: Tensor, sin: Tensor, pairing: str) -> Tensor:
    """Rotate x (..., S, D), in the dtype that all promote to (RoFormer, eq. 34)."""
    if pairing == "half":
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1).flatten(-2)


def unit_vectors(heads: int, count: int, seed: int) -> Tensor:
    """Random float32 vectors (1, heads, count, D) of length 1, up to rounding."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, heads, count, HEAD_DIM, generator=generator, dtype=torch.float64)
    return (x / x.norm(dim=-1, keepdim=True)).float()


def paired(x: Tensor, pairing: str) -> Tensor:
    """Put halves where this pairing looks for them, so that all ropes turn the same pairs."""
    return x if pairing == "half" else torch.stack(x.chunk(2, dim=-1), dim=-1).flatten(-2)


def table_errors(ours: Tables, reference: Tables) -> dict[str, float]:
    """Worst and root-mean-square error of cos and sin, and of both together."""
    wrong = [a.double() - b for a, b in zip(ours, reference, strict=True)]
    worst = [e.abs().max().item() for e in wrong]
    square = [e.square().mean().item() for e in wrong]
    return {
        "cos_worst": worst[0],
        "sin_worst": worst[1],
        "cos_rms": square[0] ** 0.5,
        "sin_rms": square[1] ** 0.5,
        "worst": max(worst),
        "rms": (sum(square) / 2) ** 0.5,
    }


def output_error(turned_x: Tensor, x: Tensor, reference: Tables, pairing: str) -> float:
    """Worst length of the error of rotated vectors, relative to theirs, against float64."""
    expected = turned(x.double(), *reference, pairing)
    wrong = (turned_x.double() - expected).norm(dim=-1) / expected.norm(dim=-1)
    return wrong.max().item()


def score_error(rope: Rope, positions: Tensor, one_step: Tables, heads: int) -> float:
    """Worst error of q·k of unit vectors, k one position before q: the same number everywhere.

    The products are summed in float64, so that the error is that of the rotated vectors.
    """
    q, k = (paired(unit_vectors(heads, 1, seed), rope.pairing) for seed in (1, 2))
    here, before = (x.expand(-1, -1, len(positions) - 1, -1) for x in (q, k))
    turned_q = rope.turn(here, positions[1:]).double()
    turned_k = rope.turn(before, positions[:-1]).double()
    expected = (turned(q.double(), *one_step, rope.pairing) * k.double()).sum(-1)
    return ((turned_q * turned_k).sum(-1) - expected).abs().max().item()


@torch.no_grad()
def compare(
    ropes: dict[str, Callable[[float], Rope | None]], window: int, heads: int
) -> list[dict[str, Any]]:
    """Measure every rope at every theta in the window below every end."""
    rows = []
    for theta in THETAS:
        frequencies = exact_frequencies(theta)
        one_step = exact(frequencies, torch.tensor([1]))
        made = {name: make(theta) for name, make in ropes.items()}
        for end in ENDS:
            positions = torch.arange(end - window, end)
            reference = exact(frequencies, positions)
            vectors = unit_vectors(heads, window, 0)
            for name, rope in made.items():
                if rope is None or end > rope.longest:
                    continue
                x = paired(vectors, rope.pairing)
                out = rope.turn(x, positions)
                rows.append(
                    {
                        "name": name,
                        "theta": theta,
                        "end": end,
                        **table_errors(rope.tables(positions), reference),
                        "output": output_error(out, x, reference, rope.pairing),
                        "score": score_error(rope, positions, one_step, heads),
                    }
                )
    return rows


@torch.no_grad()
def sweep(powers: Sequence[int], count: int) -> dict[str, list[list[float]]]:
    """Worst error of cos and sin in the positions below each power of two, for the figure."""
    theta = THETAS[0]
    frequencies = exact_frequencies(theta)
    made = {name: ROPES[name](theta) for name in DRAWN}
    curves: dict[str, list[list[float]]] = {name: [] for name in DRAWN}
    for power in powers:
        positions = torch.arange(2**power - count, 2**power)
        reference = exact(frequencies, positions)
        for name, rope in made.items():
            assert rope is not None
            worst = table_errors(rope.tables(positions), reference)["worst"]
            curves[name].append([2**power, worst])
    return curves


@torch.no_grad()
def by_rule(count: int, heads: int) -> list[dict[str, Any]]:
    """Measure ropewalk under every rule up to ±2^31, and the float64 product beside it."""
    if missing := set(scaling.RULES) - {type(rule) for _, rule, _ in RULES}:
        raise ValueError(f"every rule must be measured, got none of {missing}")
    edges = [0, 1, -1, FARTHEST, FARTHEST - 1, -FARTHEST - 1, *ENDS]
    generator = torch.Generator().manual_seed(0)
    logarithms = torch.rand(count, generator=generator, dtype=torch.float64) * 31
    signs = torch.randint(0, 2, (count,), generator=generator) * 2 - 1
    positions = torch.cat((torch.tensor(edges), (2**logarithms).long() * signs))
    x = unit_vectors(heads, len(positions), 3)
    rows = []
    for theta, rule, length in RULES:
        reference = exact(exact_frequencies(theta, rule, length), positions)
        spec = RotarySpec(HEAD_DIM, theta=theta, scaling=rule)
        rope, amplitude = RotaryEmbedding(spec), spec.amplitude_at(length)
        cos, sin = (t.double() / amplitude for t in rope.tables(positions, length))
        scaled = reference[0] * amplitude, reference[1] * amplitude
        out = rope.rotate(x, positions, length=length)
        rows.append(
            {
                "name": "ropewalk",
                "rule": "none" if rule is None else type(rule).__name__,
                "parameters": repr(rule),
                "theta": theta,
                "amplitude": amplitude,
                **table_errors((cos, sin), reference),
                "output": output_error(out, x, scaled, "half"),
            }
        )
        if rule is None:
            product = float64_product(theta)
            rows.append(
                {
                    "name": "float64 product",
                    "rule": "none",
                    "theta": theta,
                    **table_errors(product.tables(positions), reference),
                    "output": output_error(product.turn(x, positions), x, reference, "half"),
                }
            )
    return rows


@torch.no_grad()
def rounding(window: int, heads: int) -> list[dict[str, Any]]:
    """Count elements of ropewalk's half-precision output that are not float32's rounded once."""
    rows = []
    for dtype in (torch.bfloat16, torch.float16):
        elements = differing = 0
        for pairing in ("half", "interleaved"):
            rope = RotaryEmbedding(RotarySpec(HEAD_DIM, pairing=pairing))
            x = unit_vectors(heads, window, 4).to(dtype)
            for end in (*ENDS, FARTHEST):
                positions = torch.arange(end - window, end)
                once = turned(x.float(), *rope.tables(positions), pairing).to(dtype)
                elements += x.numel()
                differing += int((rope.rotate(x, positions) != once).sum())
        name = str(dtype).removeprefix("torch.")
        rows.append({"dtype": name, "elements": elements, "differing": differing})
    return rows


@torch.no_grad()
def written_out_as_driven(window: int) -> dict[str, bool]:
    """Whether formulas that are written out here give transformers' very numbers, bit for bit."""
    if installed("transformers") is None:
        return {}
    from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions

    near = torch.arange(LARGEST_TABLE - window, LARGEST_TABLE)
    far = torch.arange(ENDS[-1] - window, ENDS[-1])
    sin, cos = create_sinusoidal_positions(LARGEST_TABLE, HEAD_DIM)[near].chunk(2, dim=-1)
    written = gptj(10_000.0)
    assert written is not None
    same = {"GPT-J": all(map(torch.equal, written.tables(near), (cos, sin)))}
    half = torch.bfloat16
    for name, dtypes in {
        "transformers, Llama": (torch.float32, torch.float32),
        "Llama, bfloat16 tables": (torch.float32, half),
        "Llama, .bfloat16()": (half, half),
    }.items():
        pair = llama_written_out(THETAS[0], *dtypes), llama(THETAS[0], *dtypes)
        same[name] = all(map(torch.equal, *(rope.tables(far) for rope in pair)))
    return same


def claimed(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Set what ropewalk claims against what was measured, every window and rule together."""
    ours = [r for r in results["rows"] + results["rules"] if r["name"] == "ropewalk"]
    measured = {
        "worst error of cos and sin, up to ±2^31": (TABLE_CLAIM, max(r["worst"] for r in ours)),
        "worst relative error of float32 output": (OUTPUT_CLAIM, max(r["output"] for r in ours)),
        "half-precision elements not rounded once": (
            0,
            sum(row["differing"] for row in results["rounding"]),
        ),
    }
    return [
        {"claim": claim, "limit": limit, "measured": value, "holds": value <= limit}
        for claim, (limit, value) in measured.items()
    ]


def shown(results: dict[str, Any]) -> str:
    """Lay out what was measured."""
    at = {(r["theta"], r["name"], r["end"]): r for r in results["rows"]}
    names = list(dict.fromkeys(r["name"] for r in results["rows"]))
    parts = []
    for theta in THETAS:
        far = ["rms", "output", "score"]
        head = [f"theta {theta:,.0f}", *(f"{end:,}" for end in ENDS), *far]
        cells = [
            [
                name,
                *(number(at.get((theta, name, end)), "worst") for end in ENDS),
                *(number(at.get((theta, name, ENDS[-1])), measure) for measure in far),
            ]
            for name in names
            if any((theta, name, end) in at for end in ENDS)
        ]
        parts.append(table(head, cells))
    head = ["up to ±2^31", "theta", "worst", "rms", "output"]
    cells = [
        [
            row["name"] + ("" if row["rule"] == "none" else f", {row['rule']}"),
            f"{row['theta']:,.0f}",
            *(number(row, measure) for measure in ("worst", "rms", "output")),
        ]
        for row in results["rules"]
    ]
    parts.append(table(head, cells))
    parts.append("\n".join(
        f"{row['claim']}: {row['measured']:.2g} (claimed: at most {row['limit']:g})"
        for row in results["claims"]
    ))  # fmt: skip
    if results["absent"]:
        parts.append(f"not installed, or not to be imported: {', '.join(results['absent'])}")
    if "transformers" in results["absent"]:
        parts.append("transformers' rows are its formulas, written out")
    return "\n\n".join(parts)


def number(row: dict[str, Any] | None, measure: str) -> str:
    """Write an error with two digits, a dash where there is none."""
    return "–" if row is None else f"{row[measure]:.1e}"


def drawn(curves: dict[str, list[list[float]]]) -> bytes:
    """Draw the error against the position, both logarithmic, as a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.8), layout="constrained", facecolor=LIGHT_PAGE)
    axes = figure.subplots()
    for place, (name, points) in enumerate(curves.items()):
        look = style(place)
        xs, ys = zip(*points, strict=True)
        size = 3 + place  # of two lines in one place, the later shows around the earlier
        axes.plot(xs, ys, look.marker + "-", color=look.colour, ms=size, zorder=9 - place)
        axes.lines[-1].set_label(name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.axhline(TABLE_CLAIM, color="#1f2328", linewidth=0.8, linestyle="--")
    axes.annotate("claimed", (15, TABLE_CLAIM * 1.2), fontsize=8)
    axes.set_xlabel("position")
    axes.set_ylabel("worst error of cos and sin")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#d8dce1", linewidth=0.6)
    axes.tick_params(labelsize=8)
    figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return png(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables, write all numbers as JSON and the figure beside them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--window", type=int, default=64, help="positions below each end")
    parser.add_argument("--heads", type=int, default=64, help="random vectors at each position")
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--out", type=Path, help="default: results/exactness.json beside this")
    parser.add_argument("--smoke", action="store_true", help="few positions")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.window, options.heads = 4, 2
    if options.window < 2 or options.heads < 1:
        parser.error("window must be at least 2, heads at least 1")
    torch.set_num_threads(options.threads)
    results = conditions(options.threads)
    began = time.monotonic()
    peers = {name: installed(name) for name in PEERS}
    results["versions"] |= {"mpmath": version("mpmath")}
    results["versions"] |= {name: found for name, found in peers.items() if found is not None}
    absent = [name for name, found in peers.items() if found is None]
    ropes = {name: make for name, make in ROPES.items() if name not in absent}
    results |= {
        "head_dim": HEAD_DIM,
        "window": options.window,
        "vectors_at_each_position": options.heads,
        "absent": absent,
        "written_out_as_driven": written_out_as_driven(options.window),
        "rows": compare(ropes, options.window, options.heads),
        "rules": by_rule(4 if options.smoke else 128, options.heads),
        "rounding": rounding(options.window, options.heads),
        "sweep": sweep(range(4, 32, 9 if options.smoke else 1), 4 if options.smoke else 16),
    }
    results["claims"] = claimed(results)
    results["duration_s"] = round(time.monotonic() - began, 1)
    print(shown(results))
    out = options.out or (None if options.smoke else FOLDER / "results" / "exactness.json")
    if out is not None:
        write_json(out, results)
        out.with_suffix(".png").write_bytes(drawn(results["sweep"]))
        print(f"\n{out} in {results['duration_s']:.0f} s")


if __name__ == "__main__":
    main()
