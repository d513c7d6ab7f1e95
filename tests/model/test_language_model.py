"""One stack alone: what it may see, what a cache changes, and generation against plain argmax.

These fail if a causal model sees ahead or an encoder does not, if cached steps differ from one pass
over everything, if a batch's prompts change each other's answers, or if an encoding whose method
allows no cache gets one.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.encodings import build
from ropewalk.lab.data.batches import source_batch
from ropewalk.lab.decoding.beam_search import beam_search
from ropewalk.lab.decoding.greedy import answer, can_cache, generate
from ropewalk.lab.tokens import EOS
from ropewalk.model import LanguageModel, Transformer, TransformerShape, initialize

V = 12
ENCODINGS = ["none", "sinusoidal", "rotary", "learned(max_positions=64)", "t5", "shaw", "alibi"]


def toy(encoding="rotary", *, causal=True, attention="softmax", end=0.0, **sizes):
    """A small untrained model with a chosen probability of the end mark."""
    layers = (0, 2) if causal else (2, 0)
    shape = TransformerShape(V, 16, 2, 32, *layers, attention=attention, **sizes)
    model = LanguageModel(shape, build(encoding, shape.stack_shape(causal=causal)), causal=causal)
    initialize(model, 0)
    model.embedding.weight.data[EOS] += end
    return model.double().eval()


tokens = st.lists(st.integers(3, V - 1), min_size=2, max_size=9)


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=8)
@given(ids=tokens)
def test_a_causal_model_looks_back_only(encoding, ids):
    model = toy(encoding)
    whole = model(torch.tensor([ids]))
    changed = model(torch.tensor([[*ids[:-1], (ids[-1] + 1) % V]]))
    torch.testing.assert_close(whole[:, :-1], changed[:, :-1])
    assert not torch.allclose(whole[:, -1], changed[:, -1])


def test_an_encoder_looks_both_ways_but_not_at_padding():
    model = toy(causal=False)
    whole = model(torch.tensor([[4, 5, 6]]))
    assert not torch.allclose(whole[:, 0], model(torch.tensor([[4, 5, 7]]))[:, 0])
    mask = torch.tensor([[True, True, True, False]])
    padded = model(torch.tensor([[4, 5, 6, 9]]), mask)
    torch.testing.assert_close(padded[:, :3], whole)


@pytest.mark.parametrize("attention", ["softmax", "elu", "performer(features=16)"])
@settings(max_examples=8)
@given(ids=tokens, cut=st.integers(1, 8))
def test_a_cache_changes_nothing(attention, ids, cut):
    model = toy(attention=attention)
    cut = min(cut, len(ids) - 1)
    cache = model.shape.new_cache(2)
    rows = torch.tensor([ids])
    parts = [model(rows[:, :cut], cache=cache)]
    parts += [model(rows[:, i : i + 1], cache=cache) for i in range(cut, len(ids))]
    torch.testing.assert_close(torch.cat(parts, 1), model(rows))


def test_attention_maps_are_probabilities_of_every_layer():
    maps = toy().attention_maps(torch.tensor([[4, 5, 6, 7]]))
    assert [tuple(layer.shape) for layer in maps] == [(1, 2, 4, 4)] * 2
    for layer in maps:
        torch.testing.assert_close(layer.sum(-1), torch.ones(1, 2, 4, dtype=layer.dtype))
        assert layer.triu(1).abs().max() == 0
    both_ways = toy(causal=False).attention_maps(torch.tensor([[4, 5, 6, 7]]))
    assert both_ways[0].triu(1).max() > 0


def test_a_stack_without_layers_is_refused():
    shape = TransformerShape(V, 16, 2, 32, encoder_layers=2, decoder_layers=0)
    with pytest.raises(ValueError, match="decoder_layers must be at least 1 with causal=True"):
        LanguageModel(shape, build("none", shape.stack_shape(causal=True)), causal=True)


@torch.no_grad()
def plainly(model, prompt, longest):
    """The simplest greedy generation: everything is computed again for each token."""
    ids, found = list(prompt), []
    while len(found) < longest:
        word = int(model.logits(model(torch.tensor([ids]))[0, -1]).argmax())
        if word == EOS:
            break
        ids, found = [*ids, word], [*found, word]
    return found


prompts = st.lists(st.lists(st.integers(3, V - 1), min_size=1, max_size=5), min_size=1, max_size=5)


@pytest.mark.parametrize("encoding", ["rotary", "t5", "learned(max_positions=64)"])
@settings(max_examples=6)
@given(asked=prompts, end=st.sampled_from([-1.0, 0.0, 0.3]), room=st.sampled_from([1, 24, 1000]))
def test_answers_are_those_of_plain_greedy_search(encoding, asked, end, room):
    model = toy(encoding, end=end)
    longest = [3 + i for i in range(len(asked))]
    found = answer(model, asked, longest, room)
    for prompt, most, ids in zip(asked, longest, found, strict=True):
        wanted = plainly(model, prompt, len(asked) + 5)
        # A batch runs on until its longest answer may have ended.
        assert ids == wanted[: len(ids)]
        assert len(ids) >= min(len(wanted), most)


def uncached(model):
    """Let every site say that its method allows no cache."""
    for module in model.modules():
        if hasattr(module, "cached_keys"):
            module.cached_keys = "none"
    return model


def test_an_encoding_without_a_cache_is_computed_anew():
    model = toy()
    rows = torch.tensor([[4, 5, 6], [7, 8, 9]])
    cached = generate(model, rows, max_tokens=6)
    assert can_cache(model.layers)
    assert not can_cache(uncached(model).layers)
    with pytest.raises(ValueError, match="cache must be None"):
        model(rows, cache=model.shape.new_cache(2))
    assert generate(model, rows, max_tokens=6) == cached


@pytest.mark.parametrize("beam", [1, 3])
def test_beam_search_without_a_cache_finds_the_same(beam):
    shape = TransformerShape(V, 16, 2, 32, encoder_layers=1, decoder_layers=2)
    stacks = [build("rotary", shape.stack_shape(causal=causal)) for causal in (False, True)]
    model = Transformer(shape, *stacks)
    initialize(model, 0)
    model.double().eval()
    source, mask = source_batch([[4, 5, 6], [7], [8, 9, 3, 4]])
    cached = beam_search(model, source, mask, beam=beam, max_tokens=[18, 14, 20])
    uncached(model.decoder)
    anew = beam_search(model, source, mask, beam=beam, max_tokens=[18, 14, 20])
    assert [[h.ids for h in each] for each in anew] == [[h.ids for h in each] for each in cached]
    for one, other in zip(anew, cached, strict=True):
        assert [h.log_probability for h in one] == pytest.approx(
            [h.log_probability for h in other], abs=1e-5
        )


@pytest.mark.parametrize("attention", ["softmax", "elu"])
@pytest.mark.parametrize("encoding", ["none", "rotary"])
def test_beams_of_a_branching_cache_see_what_they_go_on_from_alone(encoding, attention):
    """Fails if beams see each other, or the history of another beam."""
    model = toy(encoding, attention=attention)
    cache = model.shape.new_cache(2, branching=True)
    with torch.no_grad():
        model(torch.tensor([[3, 4]]), cache=cache)
        cache.follow(torch.tensor([[1, 0]]))
        both = model(torch.tensor([[5, 6]]), cache=cache)[0]
        expected = model(torch.tensor([[4, 5], [3, 6]]))[:, -1]
    torch.testing.assert_close(both, expected)


def test_a_beam_that_never_was_is_not_followed():
    model = toy(attention="elu")
    cache = model.shape.new_cache(2, branching=True)
    with torch.no_grad():
        model(torch.tensor([[3], [4]]), cache=cache)
    with pytest.raises(IndexError, match="0 to 0, got"):
        cache.follow(torch.tensor([[1], [0]]))


@pytest.mark.parametrize("attention", ["softmax", "elu", "performer(features=12)"])
def test_padding_in_front_is_hidden_from_cached_steps_too(attention):
    """Fails if a mask of the new tokens alone is taken for one of all."""
    model, ids = toy("none", attention=attention), torch.randint(3, V, (2, 6))
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[1, :3] = False
    cache = model.shape.new_cache(2)
    with torch.no_grad():
        whole = model(ids, mask)[:, 5:]
        model(ids[:, :5], mask[:, :5], cache)
        with pytest.raises(ValueError, match=r"mask must be \(B, T\).* \(2, 6\), got \(2, 1\)"):
            model(ids[:, 5:], mask[:, 5:], cache)
        step = model(ids[:, 5:], mask, cache)
    torch.testing.assert_close(step, whole)


def test_an_encoder_has_no_cache():
    model = toy(causal=False)
    with pytest.raises(ValueError, match="cache must be None with causal=False"):
        model(torch.tensor([[3]]), cache=model.shape.new_cache(2))
