"""The reference experiment: what is scored, and how it is judged.

These fail if windows of different lengths end at different tokens, if a query sees a key beyond the
nearest ones or one less, if a document counts twice, or if a test is not that of the numbers.
"""

from pathlib import Path

import pytest
import torch
from cells_here import compare_here
from scripts import load_scripts
from tiny_tasks import config_of
from torch.nn.functional import cross_entropy

from ropewalk.encodings import build
from ropewalk.lab.results import read_results
from ropewalk.lab.tokens import Tokens
from ropewalk.model import LanguageModel, TransformerShape, initialize

reference, rules, scores = load_scripts(
    "studies", "reference", "reference_rules", "reference_scores"
)
ROOT = Path(__file__).parents[2]
WORDS = "the kernel maps a page and the page has a lock that a task takes".split()  # noqa: SIM905


def language_model(layers=1, encoding="rotary"):
    shape = TransformerShape(60, 16, 2, 32, encoder_layers=0, decoder_layers=layers)
    model = LanguageModel(shape, build(encoding, shape.stack_shape(causal=True)), causal=True)
    initialize(model, 1)
    return model.eval()


def test_nearest_keys_are_those_of_a_shorter_window():
    """In one layer of a relative encoding, the rest of the window is as if it were not there."""
    model, ids = language_model(), torch.randint(60, (3, 33))
    for nearest in (1, 5, 32):
        found = scores.token_losses(model, ids, nearest)[:, -1]
        short = scores.token_losses(model, ids[:, -nearest - 1 :])[:, -1]
        assert torch.allclose(found, short, atol=1e-5)


def test_with_all_keys_the_losses_are_those_of_the_model():
    for encoding in ("rotary", "none", "alibi", "t5", "sinusoidal"):
        model, ids = language_model(2, encoding), torch.randint(60, (2, 20))
        wanted = cross_entropy(model.logits(model(ids[:, :-1])).mT, ids[:, 1:], reduction="none")
        assert torch.allclose(scores.token_losses(model, ids), wanted, atol=1e-5)


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "test").mkdir()
    for name, count in (("a-long", 90), ("a-short", 20), ("b-middle", 45)):
        words = (f"{WORDS[i % 13]}" for i in range(count))
        (tmp_path / "test" / f"{name}.txt").write_text(" ".join(words))
    return tmp_path


def test_windows_end_at_the_end_of_documents(texts):
    tokens = Tokens.train([" ".join(WORDS)] * 3, 60)
    windows = scores.read_windows(texts, tokens, longest=32)
    assert windows.names == ("a-long", "b-middle")
    assert windows.documents.tolist() == [0, 0, 1]
    for name, row in (("a-long", 0), ("b-middle", 2)):
        (ids,) = tokens.encode([(texts / "test" / f"{name}.txt").read_text()])
        assert windows.ids[row].tolist() == ids[-33:]
    (ids,) = tokens.encode([(texts / "test" / "a-long.txt").read_text()])
    assert windows.ids[1].tolist() == ids[-65:-32]
    with pytest.raises(SystemExit, match="TEXTS must have documents of 5001 tokens"):
        scores.read_windows(texts, tokens, longest=5000)


def test_a_document_counts_once(monkeypatch):
    """Fails if a document of two windows has twice the weight of one of a single window."""
    monkeypatch.setattr(scores, "MULTIPLES", (4, 8))
    monkeypatch.setattr(scores, "SCORED", 4)
    model, ids = language_model(), torch.randint(60, (3, 17))
    windows = scores.Windows(ids, torch.tensor([0, 0, 1]), ("a-x", "b-y"))
    found = scores.score(lambda length: model, windows, trained=2)
    losses = scores.token_losses(model, ids)
    ends = losses[:, -4:].mean(1)
    wanted = [(ends[0] + ends[1]).item() / 2, ends[2].item()]
    assert found["ends"]["16"] == pytest.approx(wanted, abs=1e-4)
    by_document = torch.stack([losses[:2].mean(0), losses[2]])
    assert found["positions"] == pytest.approx(by_document.mean(0).tolist(), abs=1e-4)
    short = scores.token_losses(model, ids[:, -9:])[:, -4:].mean(1)
    assert found["ends"]["8"][1] == pytest.approx(short[2].item(), abs=1e-4)


def test_shuffled_windows_keep_the_tokens_that_are_scored_and_the_set_of_the_others(monkeypatch):
    monkeypatch.setattr(scores, "SCORED", 4)
    ids = torch.arange(60).view(2, 30)
    found = scores.shuffle_earlier(ids)
    assert (found[:, -5:] == ids[:, -5:]).all()
    assert (found[:, :-5] != ids[:, :-5]).any()
    assert (found.sort(1).values == ids).all()
    monkeypatch.setattr(scores, "MULTIPLES", (4, 8))
    windows = scores.Windows(ids[:, :17], torch.tensor([0, 1]), ("a-x", "b-y"))
    model = language_model()
    scored = scores.score(lambda length: model, windows, 16, shuffled=True)["ends"]
    read = scores.shuffle_earlier(windows.ids)
    wanted = scores.token_losses(model, read)[:, -4:].mean(1).tolist()
    assert scored == {"16": pytest.approx(wanted, abs=1e-4)}


def losses_of(shifts, documents=60, seeds=5):
    """Losses of models that differ from rotary by these shifts, and a little by chance."""
    generator = torch.Generator().manual_seed(0)

    def chance(*shape):
        return torch.randn(*shape, generator=generator)

    easy, common = chance(documents), 0.1 * chance(seeds, 1)
    names = [f"{'ab'[i % 2]}-{i}" for i in range(documents)]
    models = {
        name: {
            str(seed): {
                "ends": {str(n): values.tolist() for n in scores.lengths(256)},
                "positions": [values.mean().item()] * 2048,
            }
            for seed, values in enumerate(
                3 + easy + common + shift + 1e-3 * chance(seeds, documents), 1
            )
        }
        for name, shift in shifts.items()
    }
    return scores.Losses(Path("losses"), 256, names, models)


def test_verdicts_are_those_of_the_differences():
    shuffled = "none, earlier tokens shuffled"
    losses = losses_of({"rotary": 0.0, "none": 0.1, "alibi": -0.1, "t5": 0.0005, shuffled: 0.3})
    del losses.models["t5"]["5"]  # not all of its models are trained yet
    kept = {
        "costs": {"rotary": 0.5, "none": 0.25},
        "passkey": {"none": {"x1": [99, 0, 1]}},
        "rates": {
            "none": {"0.001": 2.0, "0.002": None, "0.003": 1.0},
            "rotary": {"0.1": 1, "0.2": 1, "0.05": 2},
        },
    }
    found = reference.judge(losses, kept)
    assert set(found["rows"]) == {"rotary", "none", "alibi"} == set(found["positions"])
    assert found["shuffled"]["none"]["difference"] == pytest.approx(0.2, abs=0.01)
    for length in ("256", "2048"):
        verdicts = {name: test["verdict"] for name, test in found["tests"][length].items()}
        assert verdicts == {"none": "worse", "alibi": "better"}
    page = reference.readme(found | {"command": "judge", "about": ""})
    assert "| `none` |" in page
    assert "| × 0.50 |" in page
    assert "| `none` | 99 · 0 · 1 |" in page
    assert "| 33 · – | × 0.50 |" in page
    assert "`none` 0.003, the largest tried; `rotary` 0.1." in page
    assert page.count(": worse |") == 2


def test_the_judged_table_leads_the_overview(tmp_path, monkeypatch):
    """Fails if the overview's text is lost, or another folder's judgement gets into it."""
    held = losses_of({"rotary": 0.0, "none": 0.1}, documents=4)
    windows = scores.Windows(torch.empty(0), torch.empty(0), tuple(held.documents))
    home, overview = tmp_path / "reference", tmp_path / "README.md"
    overview.write_text("before\n<!-- reference -->\nold\n<!-- end -->\nafter\n", "utf-8")
    monkeypatch.setattr(reference, "FOLDER", home)
    monkeypatch.setattr(reference, "OVERVIEW", overview)
    for out in (tmp_path / "elsewhere", home):
        assert "\nold\n" in overview.read_text("utf-8")
        written = scores.Losses(out / "losses", 256, [], {})
        for name, by_seed in held.models.items():
            for seed, found in by_seed.items():
                written.add(name, int(seed), windows, found)
        monkeypatch.setattr("sys.argv", ["reference.py", "judge", "--out", str(out)])
        reference.main()
    text = overview.read_text("utf-8")
    assert text.startswith("before\n<!-- reference -->\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert 'src="reference/loss-light.png"' in text
    page = (home / "README.md").read_text("utf-8")
    for row in ("| `rotary` | ", "| `none` | "):
        (line,) = (each for each in text.splitlines() if each.startswith(row))
        assert line in page
    assert (home / "loss-light.png").exists()


def test_context_is_used_where_the_loss_falls():
    losses = losses_of({"rotary": 0.0, "alibi": 0.0})
    for held in losses.models["alibi"].values():
        held["ends"]["2048"] = [loss - 0.1 for loss in held["ends"]["256"]]
    for held in losses.models["rotary"].values():
        held["ends"]["2048"] = held["ends"]["256"]
    found = reference.context_tests(losses, ["rotary", "alibi"])
    assert {name: test["verdict"] for name, test in found.items()} == {
        "rotary": "equal",
        "alibi": "better",
    }
    assert found["alibi"]["difference"] == pytest.approx(-0.1)


def test_a_passkey_is_counted_by_its_depth():
    """The published models answer some: each split's mean is that of its thirds together."""
    results = read_results(ROOT / "results" / "generated" / "passkey")
    found = reference.passkey_by_depth(results)
    for row in results.encodings:
        for split in found[row.name]:
            mean = row.summary[split].spread("exact").mean
            assert min(found[row.name][split]) - 0.1 <= mean <= max(found[row.name][split]) + 0.1


def test_what_runs_found_is_kept_together(tmp_path):
    """Fails if a rate is another than the run's, or if a run replaces what another found."""
    results = read_results(ROOT / "results" / "causal-lm")
    rate = str(results.config.learning_rate)
    (tmp_path / "rates.json").write_text('{"alibi": {"0.1": 9.0}, "mine": {"0.1": 1.0}}')
    reference.keep("rates", ROOT / "results" / "causal-lm", tmp_path)
    kept = reference.kept("rates", tmp_path)
    assert kept["mine"] == {"0.1": 1.0}
    loss = results.row("alibi").cells[0].validation_loss
    assert kept["alibi"] == {"0.1": 9.0, rate: loss}
    assert reference.chosen(kept["alibi"]) == rate
    assert set(kept) == {"mine", *(row.name for row in results.encodings)}
    assert reference.kept("costs", tmp_path) == {}


def test_each_learning_rate_of_a_sweep_is_kept_by_the_name_that_is_given(tmp_path, monkeypatch):
    """Fails if the rates that were tried and not taken are lost, or take the encoding's name."""
    results = read_results(ROOT / "results" / "masked-lm")
    rotary = results.row("rotary")
    trials = rotary.trials
    assert len(trials) == 3
    monkeypatch.setattr(
        reference, "read_results", lambda run: results.with_changes(encodings=(rotary,))
    )
    reference.keep("rates", tmp_path, tmp_path, "mine")
    assert reference.kept("rates", tmp_path) == {
        "mine": {str(trial.settings["learning_rate"]): trial.validation_loss for trial in trials}
    }


def test_losses_are_read_as_they_were_kept(tmp_path):
    held = losses_of({"rotary": 0.0, "none": 0.1}, documents=4)
    windows = scores.Windows(torch.empty(0), torch.empty(0), tuple(held.documents))
    written = scores.Losses(tmp_path, 256, [], {})
    for name, by_seed in held.models.items():
        for seed, found in by_seed.items():
            assert written.lacks(name, seed)
            written.add(name, int(seed), windows, found)
    read = scores.Losses.read(tmp_path, 2048)
    assert (read.trained, read.documents, read.models) == (256, held.documents, held.models)
    assert not read.lacks("none", 5)
    with pytest.raises(SystemExit, match="is about other windows"):
        read.add("alibi", 1, windows, {"ends": {"32": []}})


def test_rules_are_scored_on_trained_models_and_after_more_training(texts, tmp_path, monkeypatch):
    """Fails if a rule changes a model's weights, or is lost, or more training changes nothing."""
    run = tmp_path / "run"
    compare_here(config_of("causal-lm", encodings=("rotary",), seeds=(1, 2)), run)
    monkeypatch.setattr(rules, "MORE", 1.0)
    monkeypatch.setattr(rules, "SLOWER", 1.0)
    losses = rules.score_rules(run, texts, tmp_path / "out")
    ends = {name: by_seed["1"]["ends"] for name, by_seed in losses.models.items()}
    assert list(ends) == [
        name for rule in rules.RULES for name in (rule, rules.FURTHER.format(rule=rule))
    ]
    assert ends["DynamicNTK"]["8"] == ends["none"]["8"]
    assert ends["Linear"]["8"] != ends["none"]["8"]
    assert all(ends[rules.FURTHER.format(rule=rule)] != ends[rule] for rule in rules.RULES)
    kept = sorted((tmp_path / "out" / "losses").iterdir())
    before = [path.stat().st_mtime_ns for path in kept]
    assert rules.score_rules(run, texts, tmp_path / "out").models == losses.models
    assert [path.stat().st_mtime_ns for path in kept] == before
