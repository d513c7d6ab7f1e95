"""Studies of finished runs, on tiny ones: each runs to its end and reports the run's numbers.

These fail if a study cannot read what a comparison writes, if small samples are drawn from other
statistics than those of the hypotheses, or if a rule that should have no effect changes a score.
"""

import re
import shutil

import publish
import pytest
import torch
from cells_here import run_cells_here
from scripts import load_scripts

from ropewalk.files import read_json
from ropewalk.lab.cells import Cell, read_hypotheses
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.data.corpus import load_corpus
from ropewalk.lab.results import read_results
from ropewalk.lab.running import compare as comparison
from ropewalk.lab.scoring.bleu import bleu_statistics
from ropewalk.machine import commit

(
    extrapolation,
    frequency_usage,
    heads,
    learned_distances,
    rotary_parts,
    sharpness,
    small_samples,
    token_left,
) = load_scripts(
    "studies",
    "extrapolation",
    "frequency_usage",
    "heads",
    "learned_distances",
    "rotary_parts",
    "sharpness",
    "small_samples",
    "token_left",
)

TINY = {
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "validations": 2,
    "precision": "float32",
    "device": "cpu",
}
TEXT = {
    "task": "causal-lm",
    "layers": 2,
    "train_length": 8,
    "length_multiples": (1, 2),
    "examples": 3,
    "test_examples": 24,  # at least ten windows of twice the length, or nothing is tested
    "vocabulary": 120,
    "batch_tokens": 64,
    "seeds": (1, 2),
    "encodings": ("sinusoidal", "rotary", "rotary(values=True)"),
}
SUMS = {
    "task": "addition",
    "layers": 1,
    "train_length": 2,
    "length_multiples": (1, 3000),
    "examples": 300,
    "test_examples": 12,
    "batch_tokens": 128,
    "seeds": (1,),
    "encodings": ("none", "rotary"),
}
PHRASES = {
    "epochs": 1,
    "beam": 1,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "vocabulary": 300,
    "seeds": (1, 2),
    "splits": ("validation",),
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """Return finished runs whose cells are trained one after another in this process."""

    def make(**fields):
        run = tmp_path_factory.mktemp("run")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(comparison, "run_cells", run_cells_here)
            comparison.compare(make_config(settings={**TINY, **fields}), run, command=["compare"])
        return run

    return make


@pytest.fixture(scope="module")
def text_run(run_of):
    return run_of(**TEXT)


@pytest.fixture(scope="module")
def extrapolated(text_run, run_of, tmp_path_factory):
    """The folder of the study of extrapolation; trying its rules takes seconds."""
    folder = tmp_path_factory.mktemp("extrapolation")
    extrapolation.main([str(text_run), str(run_of(**SUMS)), "--out", str(folder)])
    return folder


@pytest.fixture(scope="module")
def phrases(tmp_path_factory):
    """A folder with few of the built-in pairs."""
    folder = tmp_path_factory.mktemp("phrases")
    for name, pairs in load_corpus("phrases").splits.items():
        for language, side in zip(("de", "en"), zip(*pairs[:40], strict=True), strict=True):
            text = "".join(f"{sentence}\n" for sentence in side)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    return str(folder)


@pytest.fixture(scope="module")
def phrases_run(run_of, phrases):
    return run_of(data=phrases, **PHRASES)


@pytest.mark.slow
def test_rotary_parts_looks_into_every_layer_and_seed(text_run, tmp_path):
    rotary_parts.main([str(text_run), "--out", str(tmp_path)])
    held = read_json(tmp_path / "results.json")["encodings"]
    for name in TEXT["encodings"]:
        assert [cell["seed"] for cell in held[name]["cells"]] == [1, 2]
        for cell in held[name]["cells"]:
            assert len(cell["scores"]) == TEXT["layers"]
            assert len(cell["position_left"]) == TEXT["layers"] + 1
            assert ("norms" in cell) == name.startswith("rotary")
        norms = read_json(tmp_path / "results.json")["gradients"][name]
        assert all(seed["largest"] >= seed["median"] > 0 for seed in norms)
    # Sinusoids are added to the embedding; rotary adds no positions to it.
    left = {name: held[name]["cells"][0]["position_left"][0] for name in held}
    assert left["sinusoidal"] > 0.3 > left["rotary"]
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "`rotary`, q" in text
    for name, number in (("norms", "for q and"), ("scores", "From distance 0 to")):
        for scheme in ("light", "dark"):
            assert (tmp_path / f"{name}-{scheme}.png").stat().st_size > 1000
        (alt,) = re.findall(rf'alt="([^"]+)" src="{name}-light\.png"', text)
        assert number in alt


@pytest.mark.slow
def test_frequency_usage_measures_every_seed(run_of, tmp_path):
    run = run_of(**{**TEXT, "train_length": 16, "length_multiples": (1,), "encodings": ("rotary",)})
    frequency_usage.main([str(run), "--out", str(tmp_path)])
    held = read_json(tmp_path / "results.json")
    assert list(held["seeds"]) == ["1", "2"]
    for each in frequency_usage.usages(held).values():
        assert len(each.layers) == TEXT["layers"]
        assert [cost.fraction for cost in each.costs] == [1, 0.9, 0.75, 0.5, 0.25, 0]
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| seed 2 |" in text
    for scheme in ("light", "dark"):
        assert (tmp_path / f"norms-{scheme}.png").stat().st_size > 1000


@pytest.mark.slow
def test_heads_finds_the_head_that_distance_explains_most(run_of, tmp_path):
    recall = {**SUMS, "task": "recall", "train_length": 8, "length_multiples": (1, 2)}
    run = run_of(**{**recall, "encodings": ("rotary",)})
    heads.main([str(run), "--out", str(tmp_path)])
    held = read_json(tmp_path / "results.json")
    assert len(held["parts"]) == len(held["wavelengths"]) + 1
    weights, query = torch.tensor(held["weights"]), held["query"]
    assert held["previous"]["all pairs"] == pytest.approx(
        float(weights.diagonal(-1).mean()), abs=1e-4
    )
    scores = held["scores"]["all pairs"]
    assert len(scores) == len(held["distances"]) == len(held["tokens"]) > query
    assert f"{100 * held['share']:.0f} % of their variance" in (tmp_path / "README.md").read_text()


@pytest.mark.slow
def test_a_token_is_left_whole_where_nothing_is_added(text_run, tmp_path):
    token_left.main([str(text_run), "--out", str(tmp_path)])
    held = read_json(tmp_path / "results.json")["encodings"]
    for cells in held.values():
        assert all(len(cell["token_left"]) == TEXT["layers"] + 1 for cell in cells)
    assert all(cell["token_left"][0] == 1 for cell in held["rotary"])
    assert all(cell["token_left"][0] < 1 for cell in held["sinusoidal"])
    assert "`sinusoidal`, seed 2" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_distances_of_rows_on_a_line_are_those_of_their_positions(tmp_path):
    found = learned_distances.distances(torch.arange(512.0)[:, None])
    assert found["named"] == [1, 498]
    assert all(mean == int(n) for n, mean in found["means"].items())
    facts = {"asked": "ropewalk compare", "command": "python x", "train_length": 512}
    page = learned_distances.readme(
        {**facts, "learned": [{"seed": 1, **found}], "sinusoidal": found}
    )
    assert "| `learned`, seed 1 | 1.00 | 498.00 |" in page


@pytest.mark.slow
def test_distances_need_positions_that_were_trained(text_run):
    with pytest.raises(SystemExit, match="more than 500 positions, got 8"):
        learned_distances.main([str(text_run)])


@pytest.mark.slow
def test_extrapolation_has_the_runs_own_scores(extrapolated):
    """Also fails if the plain rope, rebuilt among the rules, is not the model that was scored."""
    text, generated = read_json(extrapolated / "results.json")["runs"]
    for run, splits in ((text, ("x1", "x2")), (generated, ("x1",))):
        plain = run["rules"]["scores"]["none"]
        for split in splits:
            assert plain[split] == pytest.approx(run["rows"]["rotary"][split], rel=1e-3)
    assert text["rules"]["scores"]["Linear"]["x2"] != text["rules"]["scores"]["none"]["x2"]
    assert text["rules"]["trained_tokens"] == TEXT["train_length"]
    assert generated["rules"]["trained_tokens"] == 1 + 2 * 2 + 1 + 3  # two digits each, and the sum
    no_score = {"x3000": [None]}  # addition has no numbers that long
    assert generated["rules"]["scores"]["YaRN"] == no_score
    readme = (extrapolated / "README.md").read_text(encoding="utf-8")
    assert "Compared with plain rotary (`none`): the same models" in readme
    assert "No rule could be tested against plain rotary" in readme
    assert "| causal-lm, perplexity | addition, % |" in readme
    assert "`sinusoidal` |" in readme
    assert "→ – |" in readme


@pytest.mark.slow
def test_rules_are_tested_against_plain_rotary(extrapolated):
    """Fails if a rule is tested on other items, against another rule, or without correction."""
    rules = read_json(extrapolated / "results.json")["runs"][0]["rules"]
    assert rules["tested"]["key"] == "loss"
    assert rules["tests"]["x1"] == {}  # all rules equal the plain rope there
    assert list(rules["tests"]["x2"]) == [rule for rule in rules["scores"] if rule != "none"]
    nll = {
        rule: [sum(each["nll"]) / sum(each["tokens"]) for each in splits["x2"]]
        for rule, splits in rules["statistics"].items()
    }
    for rule, versus in rules["tests"]["x2"].items():
        expected = (sum(nll[rule]) - sum(nll["none"])) / len(TEXT["seeds"])
        assert versus["difference"] == pytest.approx(expected, abs=1e-6)
        assert versus["low"] <= versus["difference"] <= versus["high"]
        assert versus["p"] <= versus["p_holm"] <= 1


@pytest.mark.slow
def test_a_published_folder_keeps_the_rules_that_were_tried(
    text_run, extrapolated, tmp_path, monkeypatch
):
    """Fails if scores of a published folder can't be read, or results of its rules are lost."""
    tried = read_json(extrapolated / "results.json")["runs"][:1]
    shutil.copytree(extrapolated, tmp_path / "study")
    monkeypatch.setattr(publish, "pictures_of", lambda results: {})
    publish.publish(text_run, tmp_path / "published")
    extrapolation.main([str(tmp_path / "published"), "--out", str(tmp_path / "study")])
    assert read_json(tmp_path / "study" / "results.json")["runs"] == tried


def test_rules_without_statistics_are_no_finding():
    """Fails if untested numbers are shown without the word "observation" or their seeds."""
    rules = {"trained_tokens": 8, "scores": {"none": {"x1": [1.0, 2.0, 3.0]}}}
    assert extrapolation.tests_table(rules).startswith("An observation of 3 seeds, not a finding")


@pytest.mark.slow  # models that translate, badly and at length
def test_small_samples_draw_from_the_hypotheses_statistics(
    phrases, phrases_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(small_samples, "SAMPLES", 500)
    small_samples.main([str(phrases_run), "--out", str(tmp_path)])
    cells = [cell.scores["validation"] for cell in read_results(phrases_run).encodings[0].cells]
    score = cells[0]
    hypotheses = read_hypotheses(Cell("sinusoidal", 1).folder(phrases_run), "validation")
    references = [pair[1] for pair in load_corpus(phrases).splits["validation"]]
    expected, _ = bleu_statistics(hypotheses, references)
    assert torch.equal(small_samples.statistics_of(score), expected)
    held = read_json(tmp_path / "results.json")
    assert held["commit"] == commit()
    together = [cell.score("bleu") for cell in cells]
    assert held["scores"]["together"]["of_all"]["sinusoidal"] == pytest.approx(
        sum(together) / len(together), abs=1e-3
    )
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "## BLEU of the 5 together" in readme
    assert "## Mean of the BLEU of each of the 5 sentences" in readme


@pytest.mark.slow  # models that translate, badly and at length
def test_sharpness_has_every_layer_of_every_attention(phrases_run, tmp_path):
    sharpness.main([str(phrases_run), "--out", str(tmp_path)])
    held = read_json(tmp_path / "results.json")["encodings"]
    for name in ("sinusoidal", "rotary"):
        for cell in held[name]:
            for kind in ("encoder", "decoder", "cross"):
                assert len(cell[kind]) == 2
                assert all(0 < layer["share"] <= 1 for layer in cell[kind])
    assert "## Cross-attention" in (tmp_path / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow  # models that translate, badly and at length
def test_sharpness_of_another_run_is_added(phrases_run, tmp_path):
    """Fails if existing results are lost, or encodings of other sentences are added to them."""
    sharpness.main([str(phrases_run), "--out", str(tmp_path)])
    held = read_json(tmp_path / "results.json")
    first, *_ = held["encodings"]
    renamed = {"another": held["encodings"][first]}
    found = sharpness.added(held, {**held, "asked": "ropewalk compare x", "encodings": renamed})
    assert found["encodings"] == held["encodings"] | renamed
    assert found["asked"].splitlines() == [held["asked"], "ropewalk compare x"]
    with pytest.raises(ValueError, match="sentences must be"):
        sharpness.added(held, {**held, "sentences": 3})
    sharpness.main([str(phrases_run), "--out", str(tmp_path), "--add"])
    again = read_json(tmp_path / "results.json")
    assert again["encodings"] == held["encodings"]
    assert again["command"] == held["command"]


def test_a_seed_grows_sharper_only_if_every_layer_does():
    """Fails if a mean over seeds, or only the first and last layer, count as a trend."""
    assert sharpness.grows_sharper([0.4, 0.3, 0.2, 0.1])
    assert not sharpness.grows_sharper([0.39, 0.22, 0.15, 0.40])
    assert not sharpness.grows_sharper([0.4, 0.3, 0.3, 0.1])
    assert sharpness.chance(0, 3, 4) == pytest.approx(1)
    assert sharpness.chance(1, 3, 4) == pytest.approx(1 - (23 / 24) ** 3)
    assert sharpness.chance(3, 3, 4) == pytest.approx(24**-3)


def test_what_p_rope_leaves_alone_turns_by_its_fastest_pair():
    config = make_config(settings={"task": "causal-lm", "width": 128, "heads": 4})
    (report,) = load_scripts("studies", "rotary_parts_report")
    name = "rotary(rule=proportional,fraction=0.75)"
    wanted = (config.train_length - 1) * 10_000 ** (-24 / 32)  # pair 12 of 16 is the first
    assert report.left_out_angle(name, config) == pytest.approx(wanted)
    assert report.left_out_angle("rotary", config) == 0
