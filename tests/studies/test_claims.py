"""The page of claims says what the committed results say.

These fail if the page was edited by hand or is older than the results, if a row lacks a verdict,
numbers or a working link, and if a verdict does not follow from its votes.
"""

import re

import pytest
import torch
from scripts import ROOT, load_scripts

from ropewalk.encodings import Placement
from ropewalk.encodings.parsing import split_names
from ropewalk.files import read_json
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.models import build_model
from ropewalk.lab.results import Verdict

claims, evidence, compared, vectors, words, integer_positions = load_scripts(
    "studies",
    "claims",
    "claims_evidence",
    "claims_compared",
    "claims_vectors",
    "claims_words",
    "integer_positions",
)
RESULTS = ROOT / "results"
VERDICTS = {"supported", "contradicted", "not shown", "not tested here"}
FOR, AGAINST, NEITHER = evidence.FOR, evidence.AGAINST, evidence.NEITHER


@pytest.fixture(scope="module")
def rows():
    return claims.collect()


@pytest.mark.slow
def test_the_committed_page_is_what_the_results_say(rows, monkeypatch):
    assert (RESULTS / "claims.md").read_text("utf-8") == claims.page(rows)
    monkeypatch.setattr(claims, "collect", lambda: rows)
    claims.main(["--check"])


@pytest.mark.slow
def test_every_claim_has_a_verdict_numbers_and_a_link(rows):
    assert len(rows) >= 17
    assert {row["key"] for row in rows} == claims.EVIDENCE.keys() == words.CLAIMS.keys()
    for row in rows:
        assert row["verdict"] in VERDICTS
        assert row["source"]
        assert row["test"]
        assert (row["verdict"] == "not tested here") == (not row["evidence"]), row["key"]
        for each in row["evidence"]:
            assert re.search(r"\d", each["says"]), row["key"]
            assert evidence.in_results(each["link"]).exists(), each["link"]


@pytest.mark.parametrize(
    ("votes", "verdict"),
    [
        ([], "not tested here"),
        ([None], "not tested here"),
        ([FOR, FOR, None], "supported"),
        ([FOR, NEITHER], "not shown"),
        ([FOR, NEITHER, AGAINST], "contradicted"),
    ],
)
def test_a_verdict_follows_from_its_votes(votes, verdict):
    assert claims.verdict([evidence.Evidence("1", vote, "x") for vote in votes]) == verdict


@pytest.mark.parametrize(
    ("wanted", "verdict", "low", "high", "vote"),
    [
        ("better", "better", 0.1, 0.3, FOR),
        ("better", "worse", -0.3, -0.1, AGAINST),
        ("better", "open", -0.1, 0.3, NEITHER),
        ("better", "equal", -0.001, 0.002, AGAINST),
        ("equal", "better", 0.1, 0.3, AGAINST),
        ("equal", "equal", -0.001, 0.002, FOR),
        ("equal", "open", -0.1, 0.002, NEITHER),
        ("not worse", "better", 0.1, 0.3, FOR),
        ("not worse", "worse", -0.3, -0.1, AGAINST),
        ("not worse", "open", -0.1, 0.3, NEITHER),
    ],
)
def test_a_difference_votes_by_its_direction(monkeypatch, wanted, verdict, low, high, vote):
    numbers = {"difference": (low + high) / 2, "low": low, "high": high, "p": 0.5, "p_holm": 0.5}
    found = Verdict(**numbers, verdict=verdict, margin=0.01)
    monkeypatch.setattr(evidence, "difference", lambda *names: found)
    (each,) = evidence.weighed("causal-lm", "rotary", "sinusoidal", "x1", wanted, within=0.01)
    assert each.vote == vote


def test_what_has_not_been_trained_has_no_evidence():
    assert evidence.weighed("claims/no-such-unit", "rotary", "none", "x1", "better") == []


def test_a_difference_that_was_not_tested_is_tested_now():
    """Fails if the test of the other against the first is used, or its sign is inverted."""
    one = evidence.difference("performer", "rotary", "none", "x1")
    other = evidence.difference("performer", "none", "rotary", "x1")
    assert one.difference == pytest.approx(-other.difference)
    assert one.difference < 0


def test_scores_without_training_are_those_of_the_formula():
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 8).unbind()
    scores = vectors.rotated_scores(q, k)
    for distance in (0, 1, 200):
        for pair in range(3):
            expected = 0.0
            for i in range(4):
                angle = torch.tensor(distance * 10_000 ** (-2 * i / 8), dtype=torch.float64)
                a, b = q[pair, i], q[pair, i + 4]
                expected += (a * angle.cos() - b * angle.sin()) * k[pair, i]
                expected += (a * angle.sin() + b * angle.cos()) * k[pair, i + 4]
            assert float(scores[pair, distance]) == pytest.approx(
                float(expected) / 8**0.5, abs=1e-4
            )
    facts = vectors.decay_facts()
    assert facts["peak"] == vectors.ASKED
    assert facts["chosen"] < 0


@pytest.mark.parametrize(
    ("value", "said"), [(0.0100035, "+0.010004"), (-0.0079, "−0.008"), (0.02, "+0.020")]
)
def test_a_bound_shows_on_which_side_of_the_limit_it_is(value, said):
    digits = evidence._digits(value, 3, 0.01)
    assert evidence.format_number(value, digits, signed=True) == said


def test_every_unit_that_claims_ask_for_is_in_the_list_of_runs(monkeypatch):
    """Fails if evidence is looked up by a run name or an encoding that does not exist."""
    script = (ROOT / "studies" / "runs.sh").read_text("utf-8")
    listed = dict(re.findall(r'^unit (\S+) .*--encodings "?([^"\n ]+)', script, flags=re.MULTILINE))
    asked = []
    monkeypatch.setattr(compared, "exists", lambda unit: False)
    monkeypatch.setattr(compared, "weighed", lambda *names: asked.append(names) or [])
    for gather in (compared.values_unrotated, compared.clip_harmless, compared.every_layer):
        gather()
    compared.many_frequencies()
    units = [names for names in asked if names[0].startswith("claims/")]
    assert len({unit for unit, *_ in units}) == 8
    for unit, name, other, *_ in units:
        encodings = split_names(listed[unit])
        assert {name, other} <= set(encodings), unit
    assert {"claims/sizes-small", "claims/sizes-large"} <= listed.keys()


class TestPostNorm:
    def test_norms_come_after_the_sums(self):
        sizes = {"task": "causal-lm", "width": 16, "heads": 2, "feed_forward": 32, "layers": 2}
        model = build_model(make_config(settings={**sizes, "device": "cpu"}), "none", 1, 20).eval()
        names = [name for name, _ in model.named_parameters()]
        integer_positions.make_post_norm(model)
        assert [name for name, _ in model.named_parameters()] == names
        layer, x = model.layers[0], torch.randn(1, 5, 16)
        output, _ = layer(x, Placement(torch.arange(5)), None, False, causal=True)
        y = layer.attention_norm(x + layer.attention(x, causal=True).output)
        expected = layer.feed_forward_norm(y + layer.feed_forward(y))
        torch.testing.assert_close(output, expected)
        model(torch.randint(4, 20, (2, 5)))

    def test_integers_and_sinusoids_are_trained_both_ways(self, tmp_path):
        tiny = "layers=1 width=16 heads=2 feed_forward=32 examples=3 vocabulary=120 train_length=8"
        more = "batch_tokens=64 validations=1 seeds=1 device=cpu precision=float32 test_examples=6"
        words = [*tiny.split(), *more.split(), "epochs=0.2"]
        integer_positions.main([str(tmp_path / "run"), *words, "--out", str(tmp_path / "out")])
        held = read_json(tmp_path / "out" / "results.json")
        for norm in ("pre", "post"):
            for name in integer_positions.ENCODINGS:
                (cell,) = held["norms"][norm][name]
                assert cell["largest"] >= cell["first"] > 0
        assert "post-norm, `integer`" in (tmp_path / "out" / "README.md").read_text("utf-8")
