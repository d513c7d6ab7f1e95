"""Rotations and angles against those of others: transformers' models, and mpmath.

These fail when frequencies or angles lose precision, when a pairing, a sign, an axis or the order
of axes differs from what the models of transformers do, or when the formula is not that of the
RoFormer paper.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec, axes, positions

NEEDS_TRANSFORMERS = "needs transformers, the outside reference: pip install 'ropewalk[dev]'"
NEEDS_MPMATH = "needs mpmath, the outside reference for angles: pip install 'ropewalk[dev]'"
B, H, K, S, D = 2, 4, 2, 300, 32

# transformers forms its angles in float32: below position 4096 they are off by up to 2e-4.
FLOAT32_ANGLES = {"rtol": 0, "atol": 1e-3}


def transformers_model(name: str):
    return pytest.importorskip(
        f"transformers.models.{name}.modeling_{name}", reason=NEEDS_TRANSFORMERS
    )


def queries_and_keys(kv_heads: int = K) -> tuple[Tensor, Tensor]:
    return torch.randn(B, H, S, D), torch.randn(B, kv_heads, S, D)


def each_close(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> None:
    for rotated, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(rotated, expected, **FLOAT32_ANGLES)


def test_half_pairing_is_that_of_llama():
    llama = transformers_model("llama")
    from transformers import LlamaConfig

    config = LlamaConfig(hidden_size=H * D, num_attention_heads=H, num_key_value_heads=K)
    (q, k), rope = queries_and_keys(), RotaryEmbedding(RotarySpec(D, pairing="half"))
    where = torch.stack([torch.randperm(S), torch.arange(S)])
    rotated = rope(q, k, where)

    theirs = llama.LlamaRotaryEmbedding(config)(q, where)
    each_close(rotated, llama.apply_rotary_pos_emb(q, k, *theirs))

    cos, sin = (torch.cat((table, table), dim=-1) for table in rope.tables(where))
    for ours, expected in zip(rotated, llama.apply_rotary_pos_emb(q, k, cos, sin), strict=True):
        assert torch.equal(ours, expected)


def test_interleaved_pairing_is_that_of_gptj():
    gptj = transformers_model("gptj")
    x, rope = torch.randn(B, S, H, D), RotaryEmbedding(RotarySpec(D, pairing="interleaved"))
    rotated = rope.rotate(x, seq_dim=-3)

    sin, cos = gptj.create_sinusoidal_positions(S, D).chunk(2, dim=-1)
    expected = gptj.apply_rotary_pos_emb(x, sin[None], cos[None])
    torch.testing.assert_close(rotated, expected, **FLOAT32_ANGLES)

    cos, sin = rope.tables(torch.arange(S))
    assert torch.equal(rotated, gptj.apply_rotary_pos_emb(x, sin[None], cos[None]))


@pytest.mark.parametrize(
    ("family", "prefix", "made", "sections", "pairing"),
    [
        ("qwen2_vl", "Qwen2VL", axes.sectioned, (4, 6, 6), "half"),
        ("qwen3_vl", "Qwen3VLText", axes.interleaved, (6, 5, 5), "half"),
        ("ernie4_5_vl_moe", "Ernie4_5_VLMoeText", axes.ernie, (6, 6, 4), "interleaved"),
    ],
)
def test_multimodal_ropes_are_those_of_transformers(family, prefix, made, sections, pairing):
    module = transformers_model(family)
    kind = module.Qwen2VLTextConfig if family == "qwen2_vl" else getattr(module, f"{prefix}Config")
    parameters = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": list(sections)}
    config = kind(
        hidden_size=H * D, num_attention_heads=H, num_key_value_heads=H, head_dim=D,
        rope_parameters=parameters,
    )  # fmt: skip
    q, k = queries_and_keys(H)
    where = torch.randint(0, 4_096, (3, B, S))
    tables = getattr(module, f"{prefix}RotaryEmbedding")(config)(q, where)
    rope = RotaryEmbedding(RotarySpec(D, pairing=pairing, axes=made(sections)))
    each_close(rope(q, k, where), module.apply_rotary_pos_emb(q, k, *tables))


def test_qwen2_vls_vision_has_height_then_width():
    qwen = transformers_model("qwen2_vl")
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig

    config = Qwen2VLVisionConfig(embed_dim=H * D, num_heads=H)
    q, k = torch.randn(2, 12, H, D)
    where = positions.grid(4, 3)
    tables = qwen.Qwen2VLVisionRotaryEmbedding(config)(q, where.T)
    rope = RotaryEmbedding(RotarySpec(D, axes=axes.axial((8, 8))))
    theirs = qwen.apply_rotary_pos_emb_vision(q, k, *tables)
    each_close(rope(q, k, where, seq_dim=-3), theirs)


def test_gemma_4s_vision_pairs_within_a_block_for_each_axis():
    gemma = transformers_model("gemma4")
    config = gemma.Gemma4VisionConfig(hidden_size=H * D, num_attention_heads=H, head_dim=D)
    q, k = torch.randn(2, B, 12, H, D)
    where = torch.stack([positions.grid(3, 4), positions.grid(6, 2)], dim=1)
    theirs_where = where.permute(1, 2, 0)
    tables = gemma.Gemma4VisionRotaryEmbedding(config)(q, theirs_where)
    theirs = tuple(gemma.apply_multidimensional_rope(x, *tables, theirs_where) for x in (q, k))
    theta = config.rope_parameters["rope_theta"]
    spec = RotarySpec(D, theta=theta, axes=axes.axial((8, 8)), blocks=(16, 16))
    each_close(RotaryEmbedding(spec)(q, k, where, seq_dim=-3), theirs)


def test_dinov3_rotates_by_coordinates():
    dino = transformers_model("dinov3_vit")
    config = dino.DINOv3ViTConfig(
        hidden_size=H * D, num_attention_heads=H, patch_size=4, image_size=24, rope_theta=100.0
    )
    (height, width), (q, k) = (6, 5), torch.randn(2, B, H, 30, D)
    image = torch.empty(1, 3, 4 * height, 4 * width)
    cos, sin = dino.DINOv3ViTRopePositionEmbedding(config).eval()(image)
    spec = RotarySpec(D, theta=100.0, axes=axes.axial((8, 8)), continuous=True)
    rope, where = RotaryEmbedding(spec), positions.coordinates(height, width)
    theirs = dino.apply_rotary_pos_emb(q, k, cos, sin)
    each_close(rope(q, k, where), theirs)
    each_close(rope(q, k, where.float()), theirs)


@pytest.mark.parametrize("family", ["deepseek_v3", "nanochat"])
def test_two_pairings_and_rotating_backwards_are_those_of_transformers(family):
    """DeepSeek-V3 reads interleaved pairs and writes halves; nanochat rotates by -m·f_i."""
    module, (q, k) = transformers_model(family), queries_and_keys(H)
    forwards, where = RotaryEmbedding(RotarySpec(D)), torch.randint(0, 4_096, (B, S))
    cos, sin = (torch.cat((table, table), dim=-1) for table in forwards.tables(where))
    if family == "nanochat":
        rope = RotaryEmbedding(RotarySpec(D, reverse=True))
        theirs = module.apply_rotary_pos_emb(q, k, cos, sin)
        assert torch.equal(rope.rotate(q, where), forwards.rotate(q, -where))
    else:
        rope = RotaryEmbedding(RotarySpec(D, pairing="interleaved", write_pairing="half"))
        theirs = module.apply_rotary_pos_emb_interleave(q, k, cos, sin)
    for ours, expected in zip(rope(q, k, where), theirs, strict=True):
        assert torch.equal(ours, expected)


def test_golden_numbers():
    """Of x = (1, 2, 3, 4) at position 3 with theta = 100, by hand: angles 3 and 0.3."""
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    c1, s1, c2, s2 = -0.98999250, 0.14112001, 0.95533649, 0.29552021
    by_hand = {
        "half": [c1 - 3 * s1, 2 * c2 - 4 * s2, 3 * c1 + s1, 4 * c2 + 2 * s2],
        "interleaved": [c1 - 2 * s1, 2 * c1 + s1, 3 * c2 - 4 * s2, 4 * c2 + 3 * s2],
    }
    for pairing, expected in by_hand.items():
        rope = RotaryEmbedding(RotarySpec(4, theta=100, pairing=pairing))
        rotated = rope.rotate(x, torch.tensor([3]))
        torch.testing.assert_close(rotated, torch.tensor([expected]), rtol=0, atol=1e-6)


def exact_tables(mpmath, spec: RotarySpec, position: int) -> list[tuple[float, float]]:
    """cos and sin of every pair's angle, from 1,100 bits: enough for theta = 1e-300."""
    with mpmath.workprec(1_100):
        angles = [
            position * mpmath.mpf(spec.theta) ** (mpmath.mpf(-2 * i) / spec.rotary_dim)
            for i in range(spec.rotary_dim // 2)
        ]
        return [(mpmath.cos(angle), mpmath.sin(angle)) for angle in angles]


FAR = [0, 1, -1, 4_095, 131_072, 10_000_000, 2**31 - 1, -(2**31)]


@given(
    st.sampled_from(FAR) | st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([10_000.0, 500_000.0, 1e6, 0.1, 1e-300, 1e300]) | st.floats(1.01, 1e9),
    st.sampled_from([2, 6, 64, 128]),
)
def test_angles_are_exact_at_any_position(position, theta, rotary_dim):
    mpmath = pytest.importorskip("mpmath", reason=NEEDS_MPMATH)
    spec = RotarySpec(rotary_dim, theta=theta)
    cos, sin = RotaryEmbedding(spec).tables(torch.tensor([position]))
    assert cos.dtype == sin.dtype == torch.float32
    for i, (exact_cos, exact_sin) in enumerate(exact_tables(mpmath, spec, position)):
        assert abs(cos[0, i].item() - exact_cos) <= 1e-7
        assert abs(sin[0, i].item() - exact_sin) <= 1e-7


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0, 1e-300])
@pytest.mark.parametrize("rotary_dim", [6, 128])
def test_frequencies_are_correctly_rounded(theta, rotary_dim):
    mpmath = pytest.importorskip("mpmath", reason=NEEDS_MPMATH)
    spec = RotarySpec(rotary_dim, theta=theta)
    with mpmath.workprec(200):
        exact = [
            mpmath.mpf(theta) ** (mpmath.mpf(-2 * i) / rotary_dim) for i in range(rotary_dim // 2)
        ]
        wavelengths = torch.tensor([float(2 * mpmath.pi / f) for f in exact], dtype=torch.float64)
    assert spec.inverse_frequencies().tolist() == [float(f) for f in exact]
    torch.testing.assert_close(spec.wavelengths(), wavelengths, rtol=1e-15, atol=0)
