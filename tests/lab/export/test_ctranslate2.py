"""An exported model translates as ropewalk does.

These fail if any weight, table, scale or rotation of the exported model is off: the engine's greedy
outputs and the log-probabilities of its cached decoding are compared with ropewalk's. They also
fail if an encoding is exported that the engine cannot compute, or refused without its reason.
"""

import operator

import numpy as np
import pytest
import torch

pytest.importorskip("ctranslate2")

from exported import PIECES, compare, engine, random_model, random_sources, write

from ropewalk.encodings import REGISTRY
from ropewalk.lab.data.batches import source_batch
from ropewalk.lab.export.ctranslate2 import NotExpressibleError, transformer_spec
from ropewalk.lab.tokens import BOS, EOS

EXPORTED = [
    "none",
    "integer(length=50)",
    "binary",
    "sinusoidal",
    "sinusoidal(theta=100)",
    "learned",
    "sinusoidal+learned",
    "rotary",
    "rotary(pairing=interleaved)",
    "rotary(rotary_dim=6,theta=500)",
    "rotary(rotary_dim=6,pairing=interleaved)",
    "rotary(reverse=True)",
    "rotary(frequency=0.3)",
    "rotary(rule=linear,factor=4)",
    "rotary(rule=ntkaware,factor=4)",
    "rotary(rule=yarn,factor=4,original_length=16)",
    "rotary(rule=yarn,factor=4,original_length=16,rotary_dim=6)",
    "rotary(rule=proportional,fraction=0.5)",
    "rotary(rule=dynamicntk,factor=4,original_length=16,length=64)",
    "rotary(learned=True)",
    "rotary(learned=layer)",
    "alibi",
    "alibi(symmetric=False)",
    "t5",
    "t5(buckets=8,distance=10)",
    "t5(scale=1)",
    "kerple",
    "kerple(kind=power)",
    "shaw",
    "shaw(distance=3)",
    "shaw(values=False)",
]
REFUSED = {
    "xpos(both_ways=xpos)": "no such attention",
    "transformer_xl": "no such attention",
    "deberta": "no such attention",
    "cope(two_sided=True)": "no such attention",
    "fire": "no such attention",
    "tupe": "adds to embeddings or acts in attention|no such attention",
    "rotary(cross=True)": "between texts",
    "t5(cross=True)": "between texts",
    "rotary(values=True)": "does not rotate values",
    "rotary(values=absolute)": "does not rotate values",
    "rotary(learned=head)": "rotates all heads the same way",
    "shaw(per_head=True)": "all heads of CTranslate2 share",
    "sinusoidal+rotary": "adds to embeddings or acts in attention, not both",
}
#: Faults change a log-probability by at least 100 times as much; see the test of faults.
ROUNDING = 1e-4


def test_every_encoding_is_exported_or_refused():
    named = {text.partition("(")[0] for text in (*EXPORTED, *REFUSED)}
    assert set(REGISTRY) <= named


def differences(spec, model, folder, count=4, longest=12):
    return compare(model, write(spec, folder / "out"), random_sources(count, longest))


@pytest.mark.parametrize(
    ("encoding", "fields"),
    [
        *((encoding, {}) for encoding in EXPORTED if encoding in REGISTRY),
        *(
            pytest.param(encoding, {}, marks=pytest.mark.slow)
            for encoding in EXPORTED
            if encoding not in REGISTRY
        ),
        ("none", {"kv_heads": 1}),
        ("rotary(rule=yarn,factor=4,original_length=16)", {"kv_heads": 2}),
    ],
)
def test_greedy_outputs_are_identical(encoding, fields, tmp_path):
    model = random_model(encoding, **fields)
    others, distance = differences(transformer_spec(model, PIECES), model, tmp_path)
    assert (others, distance < ROUNDING) == (0, True)


def of_layers(stack, field, change):
    """Return a fault: a field of every layer's self-attention in a stack, changed."""

    def fault(spec):
        for layer in getattr(spec, stack).layer:
            own = layer.self_attention
            setattr(own, field, change(getattr(own, field)))

    return fault


def of_part(place, field, change):
    """Return a fault: a field of a part of the specification, changed."""

    def fault(spec):
        part = operator.attrgetter(place)(spec)
        setattr(part, field, change(getattr(part, field)))

    return fault


def values_first(spec):
    linear = spec.decoder.layer[0].attention.linear[1]
    linear.weight = torch.cat(linear.weight.chunk(2)[::-1])


FAULTS = [
    ("rotary", of_layers("decoder", "rotary_interleave", operator.not_)),
    ("rotary", of_layers("encoder", "rotary_base", lambda _: np.float32(9_000))),
    ("rotary(rotary_dim=6)", of_layers("decoder", "rotary_interleave", operator.not_)),
    ("alibi", of_layers("encoder", "relative_attention_bias", lambda b: b.flip(1).contiguous())),
    ("alibi", of_part("decoder", "scale_alibi", lambda _: True)),
    ("alibi", of_layers("decoder", "queries_scale", lambda _: np.float32(0.25))),
    (
        "t5",
        of_layers("encoder", "relative_attention_bias", lambda b: torch.cat(b.chunk(2)[::-1])),
    ),
    ("shaw", of_layers("encoder", "relative_position_keys", lambda k: k.flip(0).contiguous())),
    ("sinusoidal", of_part("decoder.position_encodings", "encodings", lambda t: t.roll(-1, 0))),
    ("sinusoidal", of_part("config", "layer_norm_epsilon", lambda _: 1e-2)),
    ("sinusoidal", of_part("encoder", "scale_embeddings", lambda _: False)),
    ("sinusoidal", of_part("config", "add_source_eos", lambda _: False)),
    ("sinusoidal", values_first),
]


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "fault"), FAULTS)
def test_a_wrong_field_is_noticed(encoding, fault, tmp_path):
    """Otherwise the tests above prove nothing."""
    model = random_model(encoding)
    spec = transformer_spec(model, PIECES)
    fault(spec)
    others, distance = differences(spec, model, tmp_path, count=12, longest=24)
    assert distance > 100 * ROUNDING
    assert others > 0


@pytest.mark.parametrize(
    ("encoding", "attention", "why"),
    [
        *((encoding, "softmax", why) for encoding, why in REFUSED.items()),
        *(("rotary", kind, f"no linear attention .{kind}") for kind in ("elu", "performer")),
    ],
)
def test_what_the_engine_lacks_is_refused(encoding, attention, why):
    with pytest.raises(NotExpressibleError, match=why):
        transformer_spec(random_model(encoding, attention=attention), PIECES)


def test_a_user_defined_encoding_is_refused(monkeypatch):
    class Doubled(REGISTRY["sinusoidal"]):
        def embed(self, x, positions):
            return 2 * x

    monkeypatch.setitem(REGISTRY, "doubled", lambda shape: Doubled(shape))
    with pytest.raises(NotExpressibleError, match="user-defined"):
        transformer_spec(random_model("doubled"), PIECES)


def test_a_source_beyond_a_learned_table_raises_in_the_engine(tmp_path):
    """The README of an export says so; without an error, the engine would read other memory."""
    import ctranslate2

    spec = transformer_spec(random_model("learned(max_positions=20)"), PIECES)
    translator = ctranslate2.Translator(str(write(spec, tmp_path / "out")))
    translator.translate_batch([["t1"] * 19], beam_size=1, max_decoding_length=20)
    with pytest.raises(RuntimeError, match="positions >= 20"):
        translator.translate_batch([["t1"] * 20], beam_size=1, max_decoding_length=20)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["sinusoidal", "rotary", "alibi", "shaw", "kerple"])
def test_long_sentences_are_translated_alike(encoding, tmp_path):
    """The decoder goes beyond 1,000 tokens: tables, biases and the engine's float32 angles.

    Greedy outputs are identical if ropewalk's likeliest token after each of the engine's tokens is
    the engine's next, which one pass tells. T5's bias is written as KERPLE's is, and constant at
    these distances.
    """
    model = random_model(encoding, layers=1)
    with torch.no_grad():  # it never writes an end mark
        model.embedding.weight[EOS, 0] = -20
        model.decoder_norm.bias[0] = 10
    source = random_sources(2, 3_000)[1][:510]  # a search ends at twice its tokens
    folder = write(transformer_spec(model, PIECES), tmp_path / "out")
    ids, score = engine(folder)(source)
    assert len(ids) >= 1_000
    sources, mask = source_batch([source])
    with torch.inference_mode():
        hidden = model(sources, torch.tensor([[BOS, *ids[:-1]]]), mask)
        log_p = model.logits(hidden)[0].log_softmax(-1)
    assert log_p.argmax(-1).tolist() == ids
    assert abs(score - log_p.amax(-1).sum().item()) / len(ids) < 1e-3
