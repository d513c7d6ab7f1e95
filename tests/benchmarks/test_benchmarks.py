"""The benchmarks' baselines do the same work as ropewalk, so that their ratios mean something.

These fail if the annotated model computes something else than ropewalk's from the same weights, or
its loss smooths differently than stated; if the count of operations misses a product; if the search
without a cache finds other hypotheses than ropewalk's batched one, or a difference between two
searches is not reported; if a measured rope is not the one that it is named after, or an error of
known size is measured wrongly; if a slider of the explorer is not moved; and if a script no longer
runs to the end.
"""

import math
import os
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts import load_scripts
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from ropewalk.encodings import build_encoder_decoder
from ropewalk.lab.data.batches import EncodedSplit
from ropewalk.lab.decoding.beam_search import Hypothesis
from ropewalk.lab.decoding.translator import translate_ids
from ropewalk.lab.tokens import PAD
from ropewalk.model import Transformer, TransformerShape, initialize

annotated, common, exactness, far_ropes, training, translation, ways = load_scripts(
    "benchmarks",
    "annotated",
    "common",
    "exactness",
    "far_ropes",
    "training",
    "translation",
    "translation_ways",
)

SHAPE = TransformerShape(20, 32, 4, 48, encoder_layers=2, decoder_layers=2)
SPLIT = EncodedSplit([[4, 5, 6], [7, 8, 9, 10, 11], [12]], [[13, 14], [15, 16, 17, 18], [19, 4, 5]])


def build_model(encoding: str = "rotary", seed: int = 0) -> Transformer:
    stacks = SHAPE.stack_shape(causal=False), SHAPE.stack_shape(causal=True)
    model = Transformer(SHAPE, *build_encoder_decoder(encoding, *stacks))
    initialize(model, seed)
    return model.double().eval()


@torch.no_grad()
def test_the_annotated_model_computes_what_ropewalk_computes_from_the_same_weights():
    model = build_model("sinusoidal")
    batch = annotated.padded_batch(SPLIT, [0, 1, 2], length=9)
    assert batch.source.shape == (3, 9)
    assert batch.target_in.shape == batch.target_out.shape == (3, 8)
    assert batch.target_tokens == sum(len(target) + 1 for target in SPLIT.target)
    log_p = annotated.with_weights_of(model)(batch)
    hidden = model(batch.source, batch.target_in, batch.source_mask)
    real = batch.target_out != PAD
    expected = model.logits(hidden).log_softmax(-1)
    torch.testing.assert_close(log_p[real], expected[real], rtol=0, atol=1e-4)


@given(st.floats(0.01, 0.5), st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_the_annotated_loss_is_cross_entropy_smoothed_over_all_words_but_padding(smoothing, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(12, 9, generator=generator, dtype=torch.float64)
    logits[:, PAD] = -1e4  # padding never appears, so the others' probabilities sum to one
    target = torch.randint(1, 9, (12,), generator=generator)
    target[::3] = PAD
    loss = annotated.smoothed_divergence(logits.log_softmax(-1), target, smoothing)
    real = target != PAD
    # A word and its 7 rivals: 1 - s and s/7 each are the even share of all 8 and the rest on one.
    even = smoothing * 8 / 7
    expected = cross_entropy(
        logits[real, 1:], target[real] - 1, label_smoothing=even, reduction="sum"
    )
    entropy = -(1 - smoothing) * math.log(1 - smoothing) - smoothing * math.log(smoothing / 7)
    torch.testing.assert_close(loss, expected - real.sum() * entropy)


def test_a_sentence_longer_than_the_padding_is_refused():
    with pytest.raises(ValueError, match="at most 6 tokens, got 7"):
        annotated.padded_batch(SPLIT, [1], length=6)


def test_operations_are_those_of_every_matrix_product():
    model = annotated.AnnotatedTransformer(SHAPE)
    batch = annotated.padded_batch(SPLIT, [0, 1, 2], length=9)
    with FlopCounterMode(display=False) as counter:
        annotated.annotated_loss(model, batch, 0.1).backward()
    counted = common.product_operations(SHAPE, 3, 9, 8, 3 * 8)
    assert counter.get_total_flops() == counted


sources = st.lists(st.lists(st.integers(4, 19), min_size=1, max_size=5), min_size=1, max_size=3)
models = st.sampled_from(["rotary", "sinusoidal", "learned(max_positions=9)"])


def assert_finds(search, model, rows, beam, error):
    """Each row alone has the hypotheses of ropewalk's batched search."""
    for row, expected in zip(rows, translate_ids(model, rows, beam=beam), strict=True):
        with torch.inference_mode():
            found = search(row)
        assert [h.ids for h in found] == [h.ids for h in expected]
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.log_probability == pytest.approx(theirs.log_probability, abs=error)


@given(models, sources, st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_a_search_alone_and_without_a_cache_finds_what_ropewalk_finds(encoding, rows, beam, seed):
    model = build_model(encoding, seed)
    assert_finds(lambda row: ways.uncached_search(model, row, beam), model, rows, beam, 1e-4)


@given(sources, st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_the_annotated_transformer_finds_what_ropewalk_finds(rows, beam, seed):
    """Fails if the baseline is another model, or sees its padding: its work would differ."""
    model = build_model("sinusoidal", seed)
    with torch.no_grad():  # a trained model never predicts padding
        model.embedding.weight[:, 0] = 0
        model.embedding.weight[PAD, 0] = -1000
        model.decoder_norm.bias[0] = 10
    same = annotated.with_weights_of(model)
    assert_finds(lambda row: ways.annotated_search(same, row, beam), model, rows, beam, 1e-3)


def test_the_annotated_transformer_takes_no_other_encoding():
    with pytest.raises(ValueError, match=r"must be sinusoidal, .*got Rotary"):
        annotated.with_weights_of(build_model("rotary"))


@pytest.mark.slow
def test_a_difference_between_searches_is_counted_and_not_laid_on_rounding_if_it_stays():
    model, rows = build_model("sinusoidal").float(), [[4, 5], [6], [7, 8, 9]]
    first, _, _, last, *_ = translation.measure(model, rows, 2, every=1, rounds=1)
    assert translation.compare_hypotheses(model, rows, last, first, 0.6)["identical"] == 3
    first.found[1] = [Hypothesis((4, 4, 4), 0.0)]
    seen = translation.compare_hypotheses(model, rows, last, first, 0.6)
    assert (seen["sentences"], seen["identical"]) == (3, 2)
    assert seen["differing_but_identical_in_float64"] == 1  # searched again, both find the same


@pytest.mark.slow
@pytest.mark.parametrize("script", [training, translation])
def test_a_script_runs_to_the_end_and_writes_its_numbers(script, corpus, run_script, capsys):
    threads = str(torch.get_num_threads())
    results = run_script(script, "--smoke", "--data", str(corpus), "--threads", threads)
    rows = results["rows"] if script is translation else results["models"]["smoke"]["rows"]
    assert rows[0]["ratio"] == 1.0
    assert all(row["ratio"] > 0 for row in rows)
    assert {"commit", "command", "versions", "machine", "duration_s"} <= results.keys()
    assert "× baseline" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks for each run")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_instruction_sets_are_timed_against_copying(run_script, capsys):
    (found,) = run_script(*load_scripts("benchmarks", "rotation_sets"), "--smoke")["dtypes"]
    assert all(len(ratios) == 2 and min(ratios) > 0 for ratios in found["of_copy"].values())
    assert capsys.readouterr().out.count("\n") == 2 + len(found["of_copy"])


@pytest.mark.slow
def test_every_slider_of_the_explorer_is_moved_and_timed(run_script, capsys):
    pytest.importorskip("playwright", reason="playwright is not installed")
    if not shutil.which("chromium"):
        pytest.skip("Chromium is not installed")
    rows = run_script(*load_scripts("benchmarks", "dragging"), "--smoke")["rows"]
    assert {row["room"] for row in rows} >= {"why", "turn", "relative", "stretch", "mistakes"}
    assert all(len(row["work_ms"]) == 3 and min(row["work_ms"]) > 0 for row in rows)
    assert capsys.readouterr().out.count("| ") > len(rows)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_an_error_of_known_size_is_measured_as_what_it_is(pairing):
    frequencies, positions = exactness.exact_frequencies(1e4), torch.arange(999_996, 1_000_000)
    reference = exactness.exact(frequencies, positions)
    one_step = exactness.exact(frequencies, torch.tensor([1]))
    angle = torch.tensor(1e-3, dtype=torch.float64)  # by which every pair rotates too far
    cos, sin = reference
    wrong = cos * angle.cos() - sin * angle.sin(), sin * angle.cos() + cos * angle.sin()
    errors = exactness.table_errors(wrong, reference)
    assert errors["worst"] == pytest.approx(1e-3, rel=1e-2)
    assert errors["rms"] == pytest.approx(1e-3 / math.sqrt(2), rel=1e-2)
    rope = far_ropes.with_tables(lambda positions: wrong, pairing)
    x = exactness.paired(exactness.unit_vectors(2, 4, 0), pairing).double()
    out = rope.rotate(x, positions)
    assert exactness.output_error(out, x, reference, pairing) == pytest.approx(1e-3, rel=1e-2)
    # Scores see differences of angles only: the same error in q and k is none.
    fixed = far_ropes.with_tables(lambda at: tuple(t[at - positions[0]] for t in wrong), pairing)
    assert exactness.score_error(fixed, positions, one_step, 2) < 1e-6
    still = far_ropes.with_tables(lambda at: tuple(t[: len(at)] for t in wrong), pairing)
    assert exactness.score_error(still, positions, one_step, 2) > 1e-3


@pytest.mark.slow
def test_exactness_runs_to_the_end_and_its_numbers_are_sane(run_script, tmp_path, capsys):
    results = run_script(exactness, "--smoke", "--threads", str(torch.get_num_threads()))
    assert {"commit", "command", "versions", "machine", "duration_s"} <= results.keys()
    assert all(results["written_out_as_driven"].values())
    assert all(claim["holds"] for claim in results["claims"])
    worst = {(r["name"], r["theta"], r["end"]): r["worst"] for r in results["rows"]}
    for theta in exactness.THETAS:
        for name in ("transformers, Llama", "Meta, freqs_cis"):
            errors = [worst[name, theta, end] for end in exactness.ENDS]
            assert errors == sorted(errors)
            assert errors[0] < 1e-3 < 0.1 < errors[-1] <= 2
    assert ("GPT-J", 500_000.0, 4096) not in worst  # its theta is 10,000
    for scheme in ("light", "dark"):
        assert (tmp_path / f"out-{scheme}.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert all(f"| {name} " in printed for name in ("ropewalk", "GPT-J", "ropewalk, Llama3"))
