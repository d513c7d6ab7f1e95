"""The page of claims says what the committed results say.

These fail if the page was edited by hand or is older than the results, if a verdict does not follow
from a claim's one number, if a rule can't reach each verdict, if a link is broken, or if a reader
must read a long cell to find a verdict.
"""

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scripts import ROOT, load_scripts

from ropewalk.encodings import Placement
from ropewalk.encodings.parsing import split_names
from ropewalk.files import read_json
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.models import build_model

claims, evidence, measures, table, integer_positions = load_scripts(
    "studies",
    "claims",
    "claims_evidence",
    "claims_measures",
    "claims_table",
    "integer_positions",
)
RESULTS = ROOT / "results"
VERDICTS = {"supported", "contradicted", "open"}
RULES = [
    evidence.above(0.0),
    evidence.above(2.0, 0.5),
    evidence.below(1.05),
    evidence.harmless(0.01),
    evidence.alike(1.0),
    evidence.size(8.01, 1.0),
]


@pytest.fixture(scope="module")
def rows():
    return [evidence.judge(claim) for claim in table.CLAIMS]


def measured(value, half):
    return evidence.Measured(value, value - half, value + half, "nats", "causal-lm", 3)


@pytest.mark.slow
def test_the_committed_page_is_what_the_results_say(rows, monkeypatch):
    assert (RESULTS / "claims.md").read_text("utf-8") == claims.page(rows)
    monkeypatch.setattr(claims, "CLAIMS", rows)
    monkeypatch.setattr(claims, "judge", lambda row: row)
    claims.main(["--check"])


@pytest.mark.slow
def test_every_claim_has_a_section_a_verdict_and_a_link(rows):
    page = claims.page(rows)
    assert len({row.claim.key for row in rows}) == len(rows)
    for number, row in enumerate(rows, 1):
        claim, found = row.claim, row.measured
        assert row.verdict in VERDICTS
        assert found.low <= found.value <= found.high
        assert f"### {number}. {claim.says}" in page
        assert f'<a id="{claim.key}"></a>' in page
        assert evidence.in_results(found.link).exists(), found.link
        assert claim.key in claims.picture_of(rows).data
    assert all(len(line.split()) <= 60 for line in page.splitlines() if not line.startswith("  <"))
    assert "|" not in page  # no table, so no cell is long


@pytest.mark.parametrize("rule", RULES, ids=range(len(RULES)))
def test_every_verdict_can_be_reached(rule):
    """Fails if more evidence could never support, or never contradict, a claim."""
    near = rule.claimed
    found = {rule.verdict(measured(near + by, 1e-4)) for by in (-50, -0.05, 0.005, 0.7, 50)}
    assert {"supported", "contradicted"} <= found
    assert rule.verdict(measured(near, 100.0)) == "open"


@given(st.sampled_from(RULES), st.floats(-20, 20), st.floats(1e-6, 9), st.floats(0.01, 1))
def test_more_evidence_does_not_open_what_was_decided(rule, value, half, share):
    """Fails if an interval inside another one decides less."""
    wide, narrow = (rule.verdict(measured(value, each)) for each in (half, share * half))
    assert wide == "open" or narrow != "open"


@pytest.mark.parametrize(
    ("rule", "value", "verdict"),
    [
        (evidence.above(0.0, 0.01), 0.005, "contradicted"),
        (evidence.above(0.0, 0.01), 0.05, "supported"),
        (evidence.harmless(0.01), 0.005, "supported"),
        (evidence.alike(1.0), 0.5, "supported"),
        (evidence.alike(1.0), -2.0, "contradicted"),
    ],
)
def test_a_difference_within_the_margin_is_none(rule, value, verdict):
    assert rule.verdict(measured(value, 0.001)) == verdict


@pytest.mark.parametrize(("freedom", "wanted"), [(2, 4.3027), (4, 2.7764), (9, 2.2622)])
def test_intervals_of_seeds_are_those_of_student(freedom, wanted):
    assert evidence._student(freedom) == pytest.approx(wanted, abs=2e-4)
    found = evidence.over([1.0, 2.0, 3.0], "nats", "causal-lm")
    assert found.high - found.value == pytest.approx(4.3027 / 3**0.5, rel=1e-4)


def test_a_loss_is_the_opposite_of_a_gain():
    one = evidence.gain("performer", "rotary", "none")
    other = evidence.gain("performer", "none", "rotary")
    assert one.value == pytest.approx(-other.value)
    assert one.value > 0
    lost = evidence.loss_of("performer", "rotary", "none")
    assert (lost.value, lost.low, lost.high) == (-one.value, -one.high, -one.low)


def test_the_bound_is_roformers():
    """The mean of |S_j| at distances 1, 32 and 256 for 128 dimensions; at 0 it is (R + 1) / 2."""
    bounds = [round(measures.bound_of_scores(n).value, 1) for n in (1, 32, 256)]
    assert bounds == [31.5, 13.4, 6.5]
    assert measures.bound_of_scores(0).value == pytest.approx(32.5)
    assert measures.farthest_peak().value == 200


def test_further_numbers_of_the_same_unit_that_disagree_are_told():
    """Fails if a page hides that a number beside the chosen one says the opposite."""
    further = (evidence.Further("a", measured(-1, 0.1)), evidence.Further("b", measured(1, 0.1)))
    other = evidence.Further("c", replace(measured(-1, 0.1), unit="BLEU"))
    claim = replace(
        table.CLAIMS[0],
        rule=evidence.above(0.0),
        measure=lambda: measured(1, 0.1),
        further=lambda: (*further, other),
    )
    row = evidence.judge(claim)
    assert row.elsewhere() == {"contradicted": [further[0]]}
    assert "Elsewhere contradicted: a." in claims.page([row])
    assert claims.facts([row])["claims"][0]["elsewhere"] == {"contradicted": ["a"]}


def test_cached_logits_are_those_of_the_full_pass():
    assert measures.cached_differs().high < 1e-4


def test_every_unit_that_claims_ask_for_is_in_the_list_of_runs():
    """Fails if evidence is looked up by a run name or an encoding that does not exist."""
    script = (ROOT / "studies" / "runs.sh").read_text("utf-8")
    listed = dict(re.findall(r'^unit (\S+) .*--encodings "?([^"\n ]+)', script, flags=re.MULTILINE))
    source = (ROOT / "studies" / "claims_table.py").read_text("utf-8")
    asked = re.findall(r'"(claims/[\w-]+)", "([^"]+)", "([^"]+)"', source)
    assert len({unit for unit, *_ in asked}) >= 6
    for unit, name, other in asked:
        assert {name, other} <= set(split_names(listed[unit])), unit
    assert {unit for unit in measures.SIZES if unit.startswith("claims/")} <= listed.keys()


class TestNorms:
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

    def test_rms_norm_keeps_a_constant_that_layer_norm_removes(self):
        sizes = {"task": "causal-lm", "width": 16, "heads": 2, "feed_forward": 32, "layers": 2}
        model = build_model(make_config(settings={**sizes, "device": "cpu"}), "none", 1, 20).eval()
        norm, x = model.layers[0].attention_norm, torch.randn(1, 5, 16)
        torch.testing.assert_close(norm(x + 9), norm(x), atol=1e-5, rtol=1e-4)
        integer_positions.make_rms_norm(model)
        expected = (x + 9) / (x + 9).square().mean(-1, keepdim=True).sqrt()
        torch.testing.assert_close(norm(x + 9), expected)
        assert type(model.norm) is integer_positions.RMSNorm

    def test_integers_and_sinusoids_are_trained_each_way(self, tmp_path):
        tiny = "layers=1 width=16 heads=2 feed_forward=32 examples=3 vocabulary=120 train_length=8"
        more = "batch_tokens=64 validations=1 seeds=1 device=cpu precision=float32 test_examples=6"
        words = [*tiny.split(), *more.split(), "epochs=0.2"]
        integer_positions.main([str(tmp_path / "run"), *words, "--out", str(tmp_path / "out")])
        held = read_json(tmp_path / "out" / "results.json")
        for norm in integer_positions.NORMS:
            for name in integer_positions.ENCODINGS:
                (cell,) = held["norms"][norm][name]
                assert cell["largest"] >= cell["first"] > 0
        assert "post-norm, `integer`" in (tmp_path / "out" / "README.md").read_text("utf-8")
