"""Encodings whose scores depend on content and distance together: Shaw, Transformer-XL, DeBERTa.

What CoPE shares with them is also here. These fail if a row of a table is used for a wrong distance
or head, if a term or the scale is missing, if values ignore the distance, if all rows of a batch
get the positions of the first, if masked keys have an effect, or if a parameter gets another
gradient than the formula's.
"""

import types

import encoding_cases as cases
import pytest
import torch
from attention_loops import loop
from encoding_cases import (
    BACK,
    COPE,
    SCORED_BY_DISTANCE,
    attention_with,
    random,
    recorded,
    transformer,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ropewalk.encodings import Placement, build
from ropewalk.encodings.relative import table_rows
from ropewalk.model import Attention, initialize

transformers = pytest.importorskip(
    "transformers", reason="the outside reference: pip install 'ropewalk[dev]'"
)
modeling_deberta_v2 = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
modeling_wav2vec2_bert = pytest.importorskip(
    "transformers.models.wav2vec2_bert.modeling_wav2vec2_bert"
)
modeling_xlnet = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")

BOTH_WAYS = [*SCORED_BY_DISTANCE, *COPE]
LOOKING_BACK = [*SCORED_BY_DISTANCE, "cope", "cope(npos_max=3)"]


def close(actual: Tensor, expected: Tensor, atol: float = 1e-10) -> None:
    cases.close(actual, expected, atol)


seeds = st.integers(0, 2**32 - 1)
kv_heads = st.sampled_from([4, 2, 1])


def precision(name: str) -> float:
    return 1e-5 if name == "transformer_xl" else 1e-10  # sinusoids are in float32


# The formulas

positions = st.one_of(
    st.integers(0, 50).map(lambda start: [start + n for n in range(12)]),
    st.lists(st.integers(0, 60), min_size=12, max_size=12),
)


def placed(listed: list[int], count: int, batched: bool) -> Tensor:
    return (
        torch.tensor(listed[: 2 * count]).view(2, count)
        if batched
        else torch.tensor(listed[:count])
    )


@given(
    st.sampled_from([(n, False) for n in BOTH_WAYS] + [("cope", True), ("cope(npos_max=2)", True)]),
    kv_heads,
    st.integers(1, 6),
    st.integers(1, 6),
    positions,
    positions,
    st.booleans(),
    st.booleans(),
    seeds,
)
@settings(max_examples=40)
@torch.no_grad()
def test_each_equals_the_loop_of_its_paper(
    named, kv_heads, queries, keys, at, to, batched, masked, seed
):
    """Any positions, of the whole batch or of each row; any mask, also one that leaves nothing."""
    name, causal = named
    attention = attention_with(name, kv_heads, causal=causal, seed=seed)
    x, memory = random(2, queries, 32, seed=seed), random(2, keys, 32, seed=seed + 1)
    placement = Placement(placed(at, queries, batched), placed(to, keys, batched))
    allowed = torch.ones(2, queries, keys, dtype=torch.bool)
    if masked:
        allowed = random(2, queries, keys, seed=seed) < 0.3
    arguments = {"placement": placement, "mask": allowed[:, None] if masked else None}
    output, p = loop(attention, x, memory, placement, allowed)
    quick = attention(x, memory, **arguments)
    shown = attention(x, memory, **arguments, need_probabilities=True)
    assert quick.probabilities is None
    close(quick.output, output, precision(name))
    close(shown.output, output, precision(name))
    close(shown.probabilities, p, precision(name))
    assert (shown.probabilities[~allowed[:, None].expand_as(p)] == 0).all()


@pytest.mark.parametrize("name", LOOKING_BACK)
def test_gradients_are_those_of_the_loop_and_reach_every_parameter(name):
    x, weights = random(2, 5, 32), random(2, 5, 32, seed=1)
    placement = Placement(torch.tensor([[0, 1, 2, 3, 4], [7, 9, 10, 11, 30]]))
    causal = torch.ones(2, 5, 5, dtype=torch.bool).tril()
    quick, slow = attention_with(name), attention_with(name)
    (quick(x, placement=placement, causal=True).output * weights).sum().backward()
    (loop(slow, x, x, placement, causal)[0] * weights).sum().backward()
    expected = dict(slow.named_parameters())
    for parameter, found in quick.named_parameters():
        close(found.grad, expected[parameter].grad, 10 * precision(name))
        if "encoding" in parameter:
            assert found.grad.abs().max() > 1e-3, parameter


# The same as other code


@pytest.mark.parametrize(("distance", "buckets"), [(3, None), (20, None), (12, 4), (40, 8)])
@torch.no_grad()
def test_deberta_equals_that_of_transformers(distance, buckets):
    config = transformers.DebertaV2Config(
        hidden_size=32,
        num_attention_heads=4,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        max_relative_positions=distance,
        position_buckets=buckets or -1,
    )
    theirs = modeling_deberta_v2.DisentangledSelfAttention(config).double().eval()
    ours = attention_with(f"deberta(distance={distance}, buckets={buckets})", 4, causal=False)
    key, value = ours.key_value.weight.chunk(2)
    for linear, weight in (
        (theirs.query_proj, ours.query.weight),
        (theirs.key_proj, key),
        (theirs.value_proj, value),
        (theirs.pos_key_proj, ours.encoding.key.weight),
        (theirs.pos_query_proj, ours.encoding.query.weight),
    ):
        linear.weight.copy_(weight)
        linear.bias.zero_()
    ours.output.weight.copy_(torch.eye(32))
    x = random(2, 15, 32)
    mask = torch.ones(2, 1, 15, 15, dtype=torch.bool)
    mask[1, ..., 9:] = False
    table = ours.encoding.table.weight
    output, p = theirs(x, mask, output_attentions=True, rel_embeddings=table)
    found = ours(x, mask=mask, need_probabilities=True)
    # Its scale is rounded to float32.
    close(found.probabilities, p, 1e-6)
    close(found.output, output, 1e-6)


@pytest.mark.parametrize(("distance", "buckets"), [(512, 256), (128, 32), (12, 4), (1000, 100)])
def test_buckets_are_those_of_transformers(distance, buckets):
    behind = torch.arange(-1500, 1501)
    theirs = modeling_deberta_v2.make_log_bucket_position(behind, buckets, distance).long()
    expected = (theirs + buckets).clamp(0, 2 * buckets - 1)  # as disentangled_attention_bias does
    assert torch.equal(table_rows(behind, distance, buckets), expected)


@torch.no_grad()
def test_transformer_xl_equals_that_of_xlnet():
    theirs = modeling_xlnet.XLNetRelativeAttention(
        transformers.XLNetConfig(d_model=32, n_head=4)
    ).double()
    theirs.eval()
    ours = attention_with("transformer_xl", 4, causal=False)
    site = ours.encoding
    theirs.r_w_bias.copy_(site.u)
    theirs.r_r_bias.copy_(site.v)
    # Sines come first there; here they alternate with cosines.
    weight = torch.cat([site.distance.weight[:, ::2], site.distance.weight[:, 1::2]], -1)
    theirs.r.copy_(weight.T.view(32, 4, 8))
    stack = modeling_xlnet.XLNetModel
    sizes = types.SimpleNamespace(
        d_model=32,
        attn_type="bi",
        bi_data=False,
        clamp_len=-1,
        positional_embedding=stack.positional_embedding,
    )
    waves = stack.relative_positional_encoding(sizes, 7, 7, bsz=2).double()
    x, mask = random(2, 7, 32), torch.ones(2, 1, 7, 7, dtype=torch.bool)
    mask[0, ..., 5:] = False
    q = ours.query(x).view(2, 7, 4, 8).transpose(0, 1)
    k, v = ours.key_value(x).view(2, 7, 2, 4, 8).permute(2, 1, 0, 3, 4)
    expected, p = theirs.rel_attn_core(
        q,
        k,
        v,
        torch.einsum("ibh,hnd->ibnd", waves, theirs.r),
        attn_mask=(~mask).permute(2, 3, 0, 1).expand(7, 7, 2, 1).double(),
        output_attentions=True,
    )
    found = ours(x, mask=mask, need_probabilities=True)
    close(found.probabilities, p.permute(2, 3, 0, 1), 1e-5)
    close(found.output, ours.output(expected.transpose(0, 1).flatten(2)), 1e-5)


@torch.no_grad()
def test_shaw_equals_the_relative_keys_of_wav2vec2_bert():
    config = transformers.Wav2Vec2BertConfig(
        hidden_size=32,
        num_attention_heads=4,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=3,
        right_max_position_embeddings=3,
    )
    theirs = modeling_wav2vec2_bert.Wav2Vec2BertSelfAttention(config).double().eval()
    ours = attention_with("shaw(distance=3, values=False)", 4, causal=False)
    key, value = (nn.Parameter(w) for w in ours.key_value.weight.chunk(2))
    theirs.linear_q.weight, theirs.linear_k.weight = ours.query.weight, key
    theirs.linear_v.weight, theirs.linear_out.weight = value, ours.output.weight
    for linear in (theirs.linear_q, theirs.linear_k, theirs.linear_v, theirs.linear_out):
        linear.bias.zero_()
    theirs.distance_embedding.weight = ours.encoding.keys.weight
    x = random(2, 9, 32)
    close(ours(x).output, theirs(x)[0])


# Distance


@pytest.mark.parametrize("name", LOOKING_BACK)
@torch.no_grad()
def test_positions_far_beyond_training_are_no_error(name):
    attention, x = attention_with(name), random(1, 40, 32)
    for places in (torch.arange(40), torch.arange(40) ** 5 * 20, torch.arange(40) + 2**40):
        output, p = attention(x, placement=Placement(places), causal=True, need_probabilities=True)
        assert output.isfinite().all()
        close(p.sum(-1), torch.ones(1, 4, 40, dtype=torch.float64))


# Precision


@pytest.mark.parametrize("name", LOOKING_BACK)
def test_bfloat16_rounds_inputs_and_products_but_not_the_softmax(name):
    exact, attention, x = attention_with(name), attention_with(name).float(), random(2, 6, 32)
    expected = exact(x, causal=True).output
    with torch.autocast("cpu", torch.bfloat16):
        output, p = attention(x.float(), causal=True, need_probabilities=True)
    assert output.dtype == torch.bfloat16
    assert p.dtype == torch.float32
    close(p.sum(-1), torch.ones(2, 4, 6), 1e-6)
    close(output.double(), expected, 0.1)
    output.float().sum().backward()
    assert all(q.grad.dtype == torch.float32 for q in attention.parameters())


# Parameters and arguments


@pytest.mark.parametrize("name", ["shaw(distance=100)", "deberta"])
def test_tables_start_as_random_rows_of_length_one(name):
    encoding = build(name, BACK)
    initialize(encoding, 0)
    site = encoding.for_layer(0)
    table = (site.keys if name.startswith("shaw") else site.table).weight.detach()
    assert abs(float(table.square().sum(-1).mean()) - 1) < 0.1
    assert (table[0] - table[1]).abs().max() > 0.01


@pytest.mark.parametrize("name", ["shaw", "transformer_xl", "deberta", "cope"])
def test_attention_of_another_shape_is_refused(name):
    site = build(name, BACK).for_layer(0)
    message = f"heads=4 and head_dim=8 that this {name} encoding was built for, got 4 heads of 16"
    with pytest.raises(ValueError, match=message):
        Attention(64, 4, encoding=site)(torch.zeros(1, 2, 64))
    with pytest.raises(ValueError, match="built for, got 2 heads of 8 dimensions"):
        Attention(16, 2, encoding=site)(torch.zeros(1, 2, 16))


def test_layers_share_what_a_pass_forms_once(monkeypatch):
    formed = recorded(monkeypatch, torch, "unique")
    for name in ("transformer_xl", "deberta"):
        model = transformer(name, layers=3)
        model(torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 5)))
        assert len(formed) == 2  # once for each stack
        formed.clear()


@pytest.mark.parametrize(
    "names",
    [
        ("shaw(distance=1)", "shaw(distance=3)"),
        ("deberta(distance=9)", "deberta(distance=6)", "deberta(distance=9, buckets=4)"),
    ],
)
@torch.no_grad()
def test_what_a_pass_forms_once_is_told_apart(names):
    placement, x = Placement(torch.arange(8)), random(1, 8, 32)
    for name in names:
        attention = attention_with(name)
        together = attention(x, placement=placement, causal=True).output
        close(together, attention(x, causal=True).output)
