"""Tables of other code, there and back, and the operator of ONNX.

These fail when tables arrive in another order, when a way back is not the inverse of the way in,
when tables of the wrong form pass, and when ONNX would compute anything but `rotate`.
"""

import io
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused
from torch import Tensor, nn

from ropewalk import RotaryEmbedding, RotarySpec, interop, rotate

PAIRINGS = ["half", "interleaved"]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def tables(*leading: int, pairs: int = 4, amplitude: float = 1.0) -> tuple[Tensor, Tensor]:
    spec = RotarySpec(2 * pairs, amplitude=amplitude)
    count = torch.Size(leading).numel()
    cos, sin = RotaryEmbedding(spec).tables(torch.arange(count))
    return cos.reshape(*leading, pairs), sin.reshape(*leading, pairs)


def same(received: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], atol: float) -> None:
    for one, other in zip(received, expected, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0, atol=atol)


# Meta


def meta_freqs_cis(dim: int, end: int, theta: float = 10_000.0) -> Tensor:
    """The formula of meta-llama's `precompute_freqs_cis`."""
    freqs = 1.0 / theta ** (torch.arange(0, dim, 2).float() / dim)
    angles = torch.outer(torch.arange(end).float(), freqs)
    return torch.polar(torch.ones_like(angles), angles)


def test_freqs_cis_of_meta():
    freqs_cis, x = meta_freqs_cis(8, 50), random(2, 50, 3, 8)
    received = interop.from_freqs_cis(freqs_cis)
    same(received, tables(50), 1e-5)
    # Its apply_rotary_emb, for (B, S, H, D).
    rotated = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * freqs_cis[:, None]
    ours = rotate(x, *received, pairing="interleaved", seq_dim=-3)
    torch.testing.assert_close(ours, torch.view_as_real(rotated).flatten(-2), rtol=0, atol=1e-5)


@pytest.mark.parametrize("leading", [(6,), (2, 6), (3, 2, 6)])
def test_ways_back_invert_the_ways_in(leading):
    plain, grown = tables(*leading), tables(*leading, amplitude=1.3)
    assert interop.to_freqs_cis(*plain).dtype == torch.complex64
    same(interop.from_freqs_cis(interop.to_freqs_cis(*grown)), grown, 0)
    for pairing in PAIRINGS:
        theirs = interop.to_transformers(*grown, pairing=pairing)
        assert theirs[0].shape == (*leading, 8)
        same(interop.from_transformers(*theirs, pairing=pairing), grown, 0)
    freqs = interop.to_freqs(*plain)
    assert freqs.shape == (*leading, 8)
    same(interop.from_freqs(freqs), plain, 1e-6)


# transformers


def test_tables_of_transformers():
    library = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = pytest.importorskip("transformers").LlamaConfig(
        hidden_size=32, num_attention_heads=4, max_position_embeddings=64
    )
    positions = torch.randint(0, 50, (2, 7))
    cos, sin = library.LlamaRotaryEmbedding(config)(random(2, 7, 32), positions)
    received = interop.from_transformers(cos, sin, pairing="half")
    same(received, RotaryEmbedding(RotarySpec(8)).tables(positions), 1e-5)
    q, k = random(2, 4, 7, 8), random(2, 4, 7, 8, seed=1)
    theirs = library.apply_rotary_pos_emb(q, k, cos, sin)
    for x, rotated in zip((q, k), theirs, strict=True):
        torch.testing.assert_close(rotate(x, *received, pairing="half"), rotated)
    back = interop.to_transformers(*received, pairing="half")
    assert torch.equal(back[0], cos)
    assert torch.equal(back[1], sin)


def test_interleaved_tables_of_transformers():
    library = pytest.importorskip("transformers.models.cohere.modeling_cohere")
    config = pytest.importorskip("transformers").CohereConfig(
        hidden_size=32, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64
    )
    positions = torch.arange(7)[None]
    cos, sin = library.CohereRotaryEmbedding(config)(random(1, 7, 32), positions)
    received = interop.from_transformers(cos, sin, pairing="interleaved")
    q, k = random(1, 4, 7, 8), random(1, 4, 7, 8, seed=1)
    for x, rotated in zip((q, k), library.apply_rotary_pos_emb(q, k, cos, sin), strict=True):
        ours = rotate(x, *received, pairing="interleaved")
        torch.testing.assert_close(ours, rotated, rtol=0, atol=1e-6)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_tables_of_the_other_form_are_refused(pairing):
    other = PAIRINGS[pairing == "half"]
    cos, sin = interop.to_transformers(*tables(9), pairing=other)
    columns = "i and i + R/2" if pairing == "half" else "2i and 2i + 1"
    with pytest.raises(ValueError, match=re.escape(f"the same value in columns {columns}, got")):
        interop.from_transformers(cos, sin, pairing=pairing)


def test_low_precision_is_widened():
    cos, sin = (t.bfloat16() for t in interop.to_transformers(*tables(9), pairing="half"))
    received = interop.from_transformers(cos, sin, pairing="half")
    assert [t.dtype for t in received] == [torch.float32] * 2
    assert torch.equal(received[0], cos[..., :4].float())
    rotate(random(1, 2, 9, 8, dtype=torch.bfloat16), *received, pairing="half")


# rotary-embedding-torch


def test_freqs_of_rotary_embedding_torch():
    angles = torch.outer(torch.arange(40.0), 10_000.0 ** -(torch.arange(0, 8, 2) / 8))
    freqs, x = angles.repeat_interleave(2, dim=-1), random(1, 2, 40, 8)
    received = interop.from_freqs(freqs)
    same(received, tables(40), 1e-5)
    # Its apply_rotary_emb.
    x1, x2 = x.unflatten(-1, (-1, 2)).unbind(-1)
    rotated = x * freqs.cos() + torch.stack((-x2, x1), dim=-1).flatten(-2) * freqs.sin()
    ours = rotate(x, *received, pairing="interleaved")
    torch.testing.assert_close(ours, rotated, rtol=0, atol=1e-5)
    whole_turns = (interop.to_freqs(*received) - freqs) / (2 * torch.pi)
    torch.testing.assert_close(whole_turns, whole_turns.round(), rtol=0, atol=1e-5)


def test_errors_name_argument_rule_and_value():
    cos, sin = tables(6)
    real, narrow = torch.stack((cos, sin), -1), (cos[:, :3], sin[:, :3])
    complex_only = "freqs_cis must be complex, got torch.float32 of shape (6, 4, 2); if cos and sin"
    check_refused(TypeError, (lambda: interop.from_freqs_cis(real), complex_only))
    theirs, ours = interop.from_transformers, interop.to_transformers
    check_refused(
        ValueError,
        (lambda: interop.to_freqs_cis(cos, sin[:5]), "one shape, got (6, 4) and (5, 4)"),
        (lambda: theirs(*narrow, pairing="half"), "value twice, got shape (6, 3)"),
        (lambda: theirs(cos, sin, pairing="cat"), "got 'cat'"),
        (lambda: ours(cos, sin, pairing="neox"), "got 'neox'"),
        (lambda: interop.from_freqs(cos), "the same value in columns 2i and 2i + 1"),
        (lambda: interop.to_freqs(1.1 * cos, 1.1 * sin), "no amplitude, got a difference of 0.21"),
    )


# ONNX


@given(
    st.sampled_from(PAIRINGS),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    st.sampled_from([4, 6, 8]),
    st.sampled_from([-2, -3]),
    st.sampled_from([(), (1,), (2,)]),
)
def test_the_operator_of_onnx_computes_rotate(pairing, dtype, rotary_dim, seq_dim, batch):
    x = random(2, 3, 5, 8, dtype=dtype)
    length = x.shape[seq_dim]
    cos, sin = tables(*batch, length, pairs=rotary_dim // 2, amplitude=1.2)
    expected = rotate(x, cos, sin, pairing=pairing, seq_dim=seq_dim)
    rotated = interop.onnx_rotary_embedding(x, cos, sin, pairing=pairing, seq_dim=seq_dim)
    assert rotated.dtype == dtype
    assert rotated.shape == x.shape
    torch.testing.assert_close(rotated, expected)


X = torch.zeros(2, 3, 5, 8)


FIVE = tables(5)


def test_what_onnx_cannot_say_is_refused():
    def call(x=X, both=FIVE, pairing="half", **others):
        return lambda: interop.onnx_rotary_embedding(x, *both, pairing=pairing, **others)

    heads = (torch.ones(1, 3, 5, 4),) * 2
    order = "write_pairing must be None or 'half', as ONNX writes pairs in the order of x"
    check_refused(
        ValueError,
        (call(pairing="neox"), "pairing must be"),
        (call(write_pairing="interleaved"), order),
        (call(start=2), "start must be 0, as ONNX rotates leading dimensions, got 2"),
        (call(X[0]), "got shapes (3, 5, 8) and (5, 4); use rotate"),
        (call(both=heads), "got shapes (2, 3, 5, 8) and (1, 3, 5, 4); use rotate"),
        (call(X[..., :6]), "and at least R=8 (twice the last axis of cos), got 6"),
        (call(torch.zeros(2, 3, 5, 9)), "x's last axis must be even for ONNX"),
        (call(X[:, :, :4]), "cos and sin must have a row for each position of x, 4"),
    )
    dtypes = "x must be float32, float16 or bfloat16 for ONNX, got"
    check_refused(TypeError, (call(X.double()), dtypes))


class Rotated(torch.nn.Module):
    """In pairs of halves over (B, H, S, D), and interleaved over (B, S, H, D)."""

    def forward(self, q: Tensor, k: Tensor, *tables: Tensor) -> tuple[Tensor, Tensor]:
        return (
            interop.onnx_rotary_embedding(q, *tables[:2], pairing="half"),
            interop.onnx_rotary_embedding(k, *tables[2:], pairing="interleaved", seq_dim=-3),
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "call", ["rope(q, q)[0]", "rope.rotate(q, at)", "rotate(q, *tables, **half)"]
)
def test_the_older_exporter_is_told_of_the_newer_one(call):
    rope, at = RotaryEmbedding(RotarySpec(8)), torch.arange(5)
    names = {"rope": rope, "at": at, "tables": rope.tables(at), "half": {"pairing": "half"}}

    class Turned(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return eval(call, {"rotate": rotate}, {**names, "q": q})

    with pytest.raises(RuntimeError, match="must have dynamo=True"):
        torch.onnx.export(Turned(), (torch.ones(1, 2, 5, 8),), io.BytesIO(), dynamo=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # the exporter copies what torch deprecates
def test_an_export_keeps_the_operator_and_its_values():
    pytest.importorskip("onnx", reason="pip install onnx onnxscript to export to ONNX")
    pytest.importorskip("onnxscript", reason="pip install onnx onnxscript to export to ONNX")
    from onnx.checker import check_model
    from onnx.reference import ReferenceEvaluator

    q, k = random(2, 3, 5, 8), random(2, 3, 5, 8, dtype=torch.float16)
    given = (q, k, *tables(5, pairs=3), *tables(3, pairs=3))
    program = torch.onnx.export(
        Rotated().eval(), given, dynamo=True, opset_version=23, verbose=False
    )
    check_model(program.model_proto, full_check=True)
    graph = program.model_proto.graph
    nodes = [node for node in graph.node if node.op_type == "RotaryEmbedding"]
    attributes = [{each.name: each.i for each in node.attribute} for node in nodes]
    assert [node.domain for node in nodes] == ["", ""]
    assert [each["rotary_embedding_dim"] for each in attributes] == [6, 6]
    assert [each.get("interleaved", 0) for each in attributes] == [0, 1]
    names = [each.name for each in graph.input]
    fed = {name: t.numpy() for name, t in zip(names, given, strict=True)}
    rotated = ReferenceEvaluator(program.model_proto).run(None, fed)
    expected = (
        rotate(q, *given[2:4], pairing="half"),
        rotate(k, *given[4:], pairing="interleaved", seq_dim=-3),
    )
    for ours, wanted in zip(rotated, expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(ours), wanted)
