"""Sweeps: every encoding tries the same settings on validation data and keeps its best."""

import json
import shutil
from pathlib import Path

import pytest
from cells_here import compare_here as compare
from hypothesis import given
from hypothesis import strategies as st
from tiny_tasks import TINY_TRANSLATION, config_of, translation_config

from ropewalk.files import read_checked_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.config import DECODING_FIELDS, TRAINING_FIELDS, described, points
from ropewalk.lab.config_sources import make_config, read_run_config, read_sweep
from ropewalk.lab.decoding.translator import Translator
from ropewalk.lab.running.launcher import Start
from ropewalk.lab.running.run_folder import prepare
from ropewalk.lab.running.scheduler import train_one
from ropewalk.lab.running.tuning import best, chosen, read_tuned_config, trial_cells
from ropewalk.lab.running.worker import _arguments
from ropewalk.lab.training.checkpoints import training_fields

RATES = {"learning_rate": [1e-3, 1e-2]}
values = st.lists(st.integers(0, 9) | st.floats(0, 1), min_size=1, max_size=4, unique=True)
sweeps = st.dictionaries(st.sampled_from(["dropout", "clip", "beam", "average"]), values)


@given(sweep=sweeps)
def test_points_are_every_combination_once(sweep):
    found = points(sweep, sweep)
    assert len(set(found)) == len(found)
    assert all({name for name, _ in point} == sweep.keys() for point in found)
    for name, held in sweep.items():
        for value in held:
            share = sum((name, value) in point for point in found)
            assert share == len(found) / len(held)
    turned = dict(reversed(sweep.items()))  # the order of a command line changes no folder
    assert points(turned, turned) == found


@given(sweep=sweeps)
def test_a_point_survives_the_command_line_of_a_cell(sweep):
    point = points(sweep, sweep)[-1]
    words = Start(Path("run"), Cell("rotary", 1, point), "scored", 1, "a").words()
    assert tuple(_arguments(words[3:]).settings.items()) == point


@given(sweep=sweeps, seed=st.integers(0, 3))
def test_each_training_setting_has_a_folder_and_decoding_settings_have_none(sweep, seed):
    run, trained = Path("run"), points(sweep, TRAINING_FIELDS)
    assert len({Cell("rotary", seed, point).folder(run) for point in trained}) == len(trained)
    folders = {Cell("t5", seed, point).folder(run) for point in points(sweep, DECODING_FIELDS)}
    assert folders == {Cell("t5", seed).folder(run)}


@given(scores=st.lists(st.none() | st.floats(-9, 9), min_size=1, max_size=6), higher=st.booleans())
def test_the_best_is_the_first_of_the_best_and_no_failure_where_one_went_well(scores, higher):
    found = best(list(enumerate(scores)), lambda trial: trial[1], higher_is_better=higher)
    known = [score for score in scores if score is not None]
    if known:
        wanted = max(known) if higher else min(known)
        assert found[0] == scores.index(wanted)
    else:
        assert found[0] == 0


def test_commas_in_brackets_do_not_split_values():
    performer = "performer(features=8, rotate=before)"
    sweep = read_sweep([f"attention={performer},elu", "clip=1, 0.2"])
    assert sweep == {"attention": [performer, "elu"], "clip": [1, 0.2]}


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ({"learning_rat": [1]}, "did you mean 'learning_rate'"),
        ({"vocabulary": [99, 100]}, "can't vary 'vocabulary'; it can vary width"),
        ({"heads": [2, 3]}, "sweep, heads=3: heads must divide width, got heads=3, width=16"),
        ({"learning_rate": [-1]}, "must set learning_rate to a finite number above 0"),
        ({"learning_rate": [1, 1.0]}, "must have each value of learning_rate once"),
        ({"learning_rate": []}, "must set learning_rate to a list of values, not []"),
        ({"learning_rate": 0.1}, "must set learning_rate to a list of values, not 0.1"),
        ({"seeds": [1]}, "can't vary 'seeds'; it can vary width"),
        ({"layers": [1, 2]}, "can't vary layers, which task translation does not have"),
        ({"beam": [True]}, "must set beam to an integer from 1 to 100, not True"),
        ({"beam": list(range(1, 21)), "clip": [1, 2, 3, 4, 5, 6]}, "at most 100 combinations"),
        (3, "must be fields, each with a list of values"),
    ],
)
def test_a_wrong_sweep_is_refused_in_words(sweep, said):
    with pytest.raises(ValueError, match="sweep") as caught:
        translation_config(sweep=sweep)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        *(([text], "must have the form field=value") for text in ("learning_rate", "=1,2", "")),
        *(([f"clip={values}"], "have no empty value") for values in ("1,", "1,,2", "", ",1")),
        (["clip=1", "clip=2"], "write its values in one list"),
    ],
)
def test_a_sweep_that_reads_otherwise_is_refused(texts, said):
    with pytest.raises(ValueError, match=said):
        read_sweep(texts)


VALUES = {
    "kv_heads": [None, 1],
    "attention": ["softmax", "elu"],
    "schedule": ["noam", "linear"],
    "batch_sentences": [None, 8],
    "select": ["average", "best"],
    "dropout": [0.0, 0.5],
    "label_smoothing": [0.0, 0.1],
    "warmup": [0.0, 0.1],
    "width": [8, 16],
}


@pytest.mark.parametrize("name", [*TRAINING_FIELDS, *DECODING_FIELDS])
def test_every_field_that_is_offered_can_be_swept(name):
    values = VALUES.get(name, [2, 4])
    sweep = {"sweep": {name: values}, "heads": 4, "keep": 5, "encodings": "none"}
    config = config_of("copy", **sweep) if name == "layers" else translation_config(**sweep)
    assert list(config.sweep[name]) == values
    found = [getattr(config.with_settings(point), name) for point in points(config.sweep, [name])]
    assert found == values


def test_settings_are_not_chosen_and_scored_on_the_same_data():
    with pytest.raises(ValueError, match="must not include validation with a sweep"):
        translation_config(sweep={"beam": [1, 2]}, splits=("validation",))


def test_a_run_without_a_sweep_keeps_its_config():
    """Fails if run folders of earlier code could not be gone on with."""
    config = config_of("copy")
    assert "sweep" not in config.facts()
    assert config.with_settings(()) is config
    swept = config_of("copy", sweep=RATES)
    assert training_fields(swept) == training_fields(config)


@pytest.mark.slow
def test_each_encoding_gets_its_best_rate_with_an_equal_budget(tmp_path):
    config = config_of("copy", encodings="rotary,none", sweep=RATES, seeds="1,2")
    results = compare(config, tmp_path).as_json()
    for row in results["encodings"]:
        trials = row["trials"]
        assert [trial["settings"] for trial in trials] == [
            {"learning_rate": rate} for rate in RATES["learning_rate"]
        ]
        assert {trial["seed"] for trial in trials} == {1}
        losses = [trial["validation_loss"] for trial in trials]
        assert row["settings"] == trials[losses.index(min(losses))]["settings"]
        # The first seed's final cell is its trial, not another training.
        assert row["cells"][0]["validation_loss"] == min(losses)
        folders = list((tmp_path / "cells" / row["slug"]).glob("*/seed-*"))
        assert len(folders) == 3
        tested = [path for folder in folders for path in folder.glob("x1.json")]
        assert {path.parent.parent.name for path in tested} == {
            f"learning-rate-{row['settings']['learning_rate']}"
        }
    assert results["config"]["sweep"] == RATES
    # What is there is kept, and the same is chosen from it.
    again = compare(config, tmp_path).as_json()
    assert again["encodings"] == results["encodings"]


def test_a_swept_cell_is_trained_as_one_with_that_setting(tmp_path):
    fields = {"encodings": "none", "seeds": 1}
    plain = compare(config_of("copy", learning_rate=1e-2, **fields), tmp_path / "plain")
    config = config_of("copy", sweep={"learning_rate": [1e-2]}, **fields)
    swept = compare(config, tmp_path / "swept")
    (one,), (other,) = (results.encodings[0].cells for results in (plain, swept))
    assert one.validation_loss == other.validation_loss
    assert one.scores["x1"].statistics == other.scores["x1"].statistics


def test_an_encoding_that_diverged_at_one_rate_takes_the_other(tmp_path):
    sweep = {"learning_rate": [1e30, 1e-3]}
    config = config_of("copy", encodings="rotary", seeds=1, sweep=sweep)
    row = compare(config, tmp_path).as_json()["encodings"][0]
    assert [trial["status"] for trial in row["trials"]] == ["diverged", "finished"]
    assert row["trials"][0]["validation_loss"] is None
    assert row["settings"] == {"learning_rate": 1e-3}


@pytest.fixture(scope="module")
def translation(tmp_path_factory):
    """Return a function that makes a config of translation, on a few pairs in files."""
    folder = tmp_path_factory.mktemp("pairs")
    for split, count in (("train", 40), ("validation", 12), ("test", 11)):
        for language, words in (("de", "ein zwei drei"), ("en", "one two three")):
            lines = [" ".join(words.split()[: 1 + i % 3]) + f" {i % 7}" for i in range(count)]
            (folder / f"{split}.{language}").write_text("\n".join(lines) + "\n")

    def config(**fields):
        plain = {**TINY_TRANSLATION, "data": str(folder), "vocabulary": 60, "encodings": "none"}
        return make_config(settings={**plain, "seeds": 1, **fields})

    return config


@pytest.fixture(scope="module")
def made(translation, tmp_path_factory):
    run = tmp_path_factory.mktemp("translation") / "run"
    compare(translation(), run, command=["ropewalk", "compare"])
    return run


@pytest.fixture
def finished(made, tmp_path):
    """A finished run without a sweep."""
    return shutil.copytree(made, tmp_path / "run")


@pytest.mark.slow
def test_decoding_is_chosen_on_validation_by_all_seeds(translation, tmp_path):
    sweep = {"average": [1, 2], "length_penalty": [0.0, 1.0, 2.0]}
    config = translation(seeds="1,2", sweep=sweep, average=1)
    results = compare(config, tmp_path / "run").as_json()
    row = results["encodings"][0]
    trials = row["decoding_trials"]
    assert [trial["settings"] for trial in trials] == [dict(p) for p in points(sweep, sweep)]
    for trial in trials:
        assert len(trial["bleu"]) == len(trial["brevity_penalty"]) == 2
        assert trial["mean_bleu"] == pytest.approx(sum(trial["bleu"]) / 2)
        assert all(0 <= value <= 1 for value in trial["brevity_penalty"])
    most = max(trial["mean_bleu"] for trial in trials)
    first = next(trial for trial in trials if trial["mean_bleu"] == most)
    assert row["settings"] == first["settings"]
    for seed in (1, 2):
        folder = Cell("none", seed).folder(tmp_path / "run")
        decoding = read_checked_json(folder / "test.json")["decoding"]
        assert {name: decoding[name] for name in sweep} == row["settings"]


def test_an_encoding_that_diverged_has_a_report_all_the_same(translation, tmp_path):
    sweep = {"length_penalty": [0.0, 1.0]}
    config = translation(learning_rate=1e30, clip=1e30, sweep=sweep)
    row = compare(config, tmp_path / "run").as_json()["encodings"][0]
    assert row["cells"][0]["status"] == "diverged"
    assert [trial["mean_bleu"] for trial in row["decoding_trials"]] == [None, None]
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.slow
def test_trials_of_another_beam_are_not_taken_for_these(translation, finished):
    """Fails if a setting that the sweep does not vary may change under its trials.

    Also if a model translates with other settings than it was scored with.
    """
    for beam in (1, 3):
        results = compare(translation(beam=beam, sweep={"length_penalty": [0.0, 1.75]}), finished)
    trials = read_checked_json(Cell("none", 1).folder(finished) / "decoding.json")["trials"]
    assert [trial["decoding"]["beam"] for trial in trials] == [1, 1, 3, 3]
    translator = Translator.load(finished)
    chosen_penalty = results.encodings[0].settings["length_penalty"]
    assert (translator.beam, translator.length_penalty) == (3, chosen_penalty)
    assert Translator.load(finished, beam=2).beam == 2


def test_tune_does_not_train_what_is_missing(translation, finished):
    prepare(translation(seeds=(1, 2)), finished)
    with pytest.raises(ValueError, match="none, seed 2 is not trained; finish it with ropewalk"):
        read_tuned_config(finished, ["length_penalty=0.5,1.5"])


def test_tuning_a_finished_run_trains_nothing(finished):
    """Also the commands that made the run stay."""
    record = Cell("none", 1).folder(finished) / "training.json"
    before = record.stat().st_mtime_ns
    config = read_tuned_config(finished, ["length_penalty=0.5,1.5"])
    words = {"command": ["ropewalk", "tune", "r"], "after": "ropewalk compare"}
    results = compare(config, finished, **words)
    assert results.command == "ropewalk compare\nropewalk tune r"
    assert record.stat().st_mtime_ns == before
    assert results.encodings[0].settings.keys() == {"length_penalty"}
    assert read_run_config(finished).sweep == {"length_penalty": (0.5, 1.5)}
    # A second choice takes the place of the first.
    results = compare(read_tuned_config(finished, ["average=1,2"]), finished)
    assert results.encodings[0].settings.keys() == {"average"}


def test_one_model_is_trained_without_a_sweep(tmp_path):
    config = config_of("copy", encodings="none", seeds=1, sweep=RATES)
    with pytest.raises(ValueError, match="sweep must be empty to train one model"):
        train_one(config, tmp_path / "run", lambda *event: None)
    assert not (tmp_path / "run").exists()


def test_tune_refuses_what_it_cannot_do(tmp_path):
    with pytest.raises(ValueError, match="RUN must be the folder of a finished run"):
        read_tuned_config(tmp_path, ["beam=1,2"])
    (tmp_path / "results.json").write_text(json.dumps({}))
    with pytest.raises(ValueError, match="use ropewalk compare --sweep"):
        read_tuned_config(tmp_path, ["learning_rate=1,2"])


def test_trials_are_there_for_a_sweep_of_training_alone():
    assert trial_cells(config_of("copy")) == []
    assert trial_cells(config_of("copy", sweep={"average": [1, 2]})) == []
    cells = trial_cells(config_of("copy", sweep=RATES, encodings="none,rotary", seeds="4,5"))
    assert [(cell.encoding, described(cell.settings), cell.seed) for cell in cells] == [
        ("none", "learning_rate=0.001", 4),
        ("rotary", "learning_rate=0.001", 4),
        ("none", "learning_rate=0.01", 4),
        ("rotary", "learning_rate=0.01", 4),
    ]


def test_without_a_sweep_nothing_is_chosen(tmp_path):
    choices = chosen(config_of("copy", encodings="none"), tmp_path)
    assert choices["none"].facts() == {}
