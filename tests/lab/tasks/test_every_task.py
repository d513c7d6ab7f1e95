"""Every task from its data to its results, with models of a few hundred parameters.

These fail if a task cannot be trained, resumed, scored or reported; if a resumed training differs
from an uninterrupted one; or if a length that an encoding refuses costs more than its own score.
"""

import io
import json
import os
import re
import shutil

import pytest
import torch
from cells_here import compare_here, run_cells_here
from publish import publish
from published_readme import readme
from rich.console import Console
from tiny_tasks import config_of

from ropewalk.files import read_checked_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.presets import TASKS
from ropewalk.lab.report.findings import findings
from ropewalk.lab.report.terminal import print_summary, print_table
from ropewalk.lab.results import Results
from ropewalk.lab.running import compare as comparison
from ropewalk.lab.running.run_folder import prepare
from ropewalk.lab.running.scheduler import train_one
from ropewalk.lab.tasks import generated, open_task, text
from ropewalk.lab.training.trainer import Trainer


def printed(show, *arguments):
    console = Console(file=io.StringIO(), width=200)
    show(console, *arguments)
    return console.file.getvalue()


QUICK = {"copy", "causal-lm"}  # which other tests read too


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return a function that compares a config once, for all tests that only read its run."""
    done = {}

    def compare_once(task, **fields):
        """Compare in this process and return the folder and the results."""
        key = task, tuple(fields.items())
        if key not in done:
            run = tmp_path_factory.mktemp("runs") / "run"
            config = config_of(task, **fields)
            results = comparison.compare(config, run, command=["ropewalk", "compare"])
            done[key] = run, results.as_json()
        return done[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "run_cells", run_cells_here)
        for module in (text, generated):
            patch.setattr(module, "HELD_OUT", 24)  # of 200
        yield compare_once


def scored(compared, task):
    return compared(task, test_examples=12)


def refused(compared):
    """Return a comparison with few test examples and an encoding that refuses long ones."""
    return compared("copy", encodings="rotary,learned(max_positions=10)")


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=() if task in QUICK else pytest.mark.slow)
        for task in TASKS
        if task != "translation"
    ],
)
def test_every_task_from_data_to_report(compared, tmp_path, task):
    run, results = scored(compared, task)
    assert results == read_checked_json(run / "results.json")
    splits = ["x1"] if task == "masked-lm" else ["x1", "x3"]
    assert results["splits"] == splits
    assert (results["task"], results["config"]["task"]) == (task, task)
    assert "beam" not in results["config"]
    keys = [metric["key"] for metric in results["metrics"]]
    for row in results["encodings"]:
        for cell in row["cells"]:
            assert cell["status"] == "finished"
            for split in splits:
                scores = cell["scores"][split]
                assert {*keys, "statistics", "decode_seconds"} <= scores.keys()
                lengths = {len(column) for column in scores["statistics"].values()}
                assert len(lengths) == 1
        assert row["summary"]["x1"][keys[0]]["mean"] is not None
    assert results["encodings"][1]["summary"]["x1"]["versus_first"]["p"] > 0
    page = (run / "report.html").read_text(encoding="utf-8")
    assert results["about"] in page
    ids = re.findall(r' id="([^"]+)"', page.partition("<script>")[0])
    assert len(set(ids)) == len(ids)  # otherwise a section hides the script's data
    assert ">BLEU" not in page
    table = printed(print_table, Results.model_validate(results))
    assert all(text in table for text in ("sinusoidal", "rotary", *splits))
    if task not in ("copy", "masked-lm"):  # others' files are those of copy
        return
    publish(run, tmp_path / "out")
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"README.md", "results.json"} <= files
    for scheme in ("light", "dark"):
        assert {f"{name}-{scheme}.png" for name in ("score", "loss", "attention")} <= files
        assert (f"score-by-length-{scheme}.png" in files) == (len(splits) > 1)


def test_scores_are_those_of_the_items(compared):
    """Perplexity, loss and exact match, computed again from the stored items."""
    for row in scored(compared, "causal-lm")[1]["encodings"]:
        counts = set()
        for split, length in (("x1", 8), ("x3", 24)):
            scores = row["cells"][0]["scores"][split]
            nll, tokens = scores["statistics"]["nll"], scores["statistics"]["tokens"]
            assert set(tokens) == {length}
            assert scores["loss"] == pytest.approx(sum(nll) / sum(tokens), abs=1e-4)
            assert scores["perplexity"] == pytest.approx(2.718281828 ** scores["loss"], rel=1e-3)
            counts.add(sum(tokens))
        assert len(counts) == 1  # windows of every length cover the same tokens
    run, results = scored(compared, "copy")
    folder, task = Cell("rotary", 1).folder(run), open_task(config_of("copy"), run)
    found, wanted = read_checked_json(folder / "x3.json")["predictions"], task.data["x3"].target
    exact = [ids == target for ids, target in zip(found, wanted, strict=True)]
    scores = results["encodings"][1]["cells"][0]["scores"]["x3"]
    assert scores["exact"] == pytest.approx(100 * sum(exact) / len(exact))
    assert scores["statistics"]["exact"] == [int(right) for right in exact]


@pytest.mark.parametrize("name", [pytest.param("masked-lm", marks=pytest.mark.slow), "copy"])
def test_a_resumed_training_is_bit_for_bit_the_uninterrupted_one(tmp_path, name):
    task = prepare(config_of(name, dropout=0.1, epochs=2), tmp_path)
    whole = Trainer(task, "rotary", 1, tmp_path / "whole")
    record = whole.run()
    half = record.steps // 2

    def stop(record, loss):
        if record.step == half:
            os.kill(os.getpid(), 2)  # Ctrl-C

    with pytest.raises(KeyboardInterrupt):
        Trainer(task, "rotary", 1, tmp_path / "parts").run(stop)
    torch.rand(17)  # random draws between sessions must not matter
    again = open_task(task.config, tmp_path)
    second = Trainer(again, "rotary", 1, tmp_path / "parts")
    assert second.record.step == half
    resumed = second.run()
    assert [p["loss"] for p in resumed.training] == [p["loss"] for p in record.training]
    assert [p["loss"] for p in resumed.validation] == [p["loss"] for p in record.validation]
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_what_is_finished_is_kept_and_more_lengths_are_scored(compared, tmp_path):
    run = shutil.copytree(scored(compared, "copy")[0], tmp_path / "run")
    fields = {"seeds": 1, "test_examples": 12}
    folder = Cell("rotary", 1).folder(run)
    trained = (folder / "training.json").stat().st_mtime_ns
    x1 = (folder / "x1.json").stat().st_mtime_ns
    compare_here(config_of("copy", **fields), run)
    assert (folder / "x1.json").stat().st_mtime_ns == x1
    more = compare_here(config_of("copy", **fields, length_multiples=(1, 2, 4)), run)
    assert more.splits == ("x1", "x2", "x4")
    assert (folder / "training.json").stat().st_mtime_ns == trained
    with pytest.raises(ValueError, match="examples is 40 there and 41 here"):
        prepare(config_of("copy", examples=41), run)


def test_training_alone_gives_a_model(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "ropewalk.lab.running.scheduler.run_cells",
        lambda config, run, watch, launcher: run_cells_here(config, run, None, watch),
    )
    with pytest.raises(ValueError, match="encodings must have one value to train one model"):
        train_one(config_of("sort", encodings="none,rotary"), tmp_path, lambda *event: None)
    path = train_one(config_of("sort", encodings="none", seeds=3), tmp_path, lambda *event: None)
    assert path.parent.name == "seed-3"
    assert {p.name for p in (tmp_path / "cells").iterdir()} == {"none"}


def test_few_items_are_scored_and_not_tested(compared):
    """Fails if a difference on a few examples is called better, or is not mentioned."""
    _, results = refused(compared)
    assert all(row["summary"]["x1"]["exact"]["mean"] is not None for row in results["encodings"])
    versus = [row["summary"]["x1"]["versus_first"] for row in results["encodings"]]
    assert versus == [None, None]
    assert any(
        "fewer than 10 examples is not tested" in said
        for said in findings(Results.model_validate(results))
    )


def test_a_length_that_an_encoding_refuses_has_no_result_and_says_why(compared):
    run, results = refused(compared)
    rotary, learned = results["encodings"]
    assert learned["summary"]["x1"]["exact"]["mean"] is not None
    assert "positions must lie in 0..9" in learned["summary"]["x3"]["no_result"]
    assert learned["summary"]["x3"]["versus_first"] is None
    assert rotary["summary"]["x3"]["exact"]["mean"] is not None
    assert learned["cells"][0]["scores"]["x3"].keys() == {"no_result"}
    table = printed(print_table, Results.model_validate(results))
    assert "no result" in table
    assert "`learned(max_positions=10)` has no result on `x3`: positions must lie in 0..9" in table
    page = re.sub("</?code>", "", (run / "report.html").read_text(encoding="utf-8"))
    assert "learned(max_positions=10) has no result on x3: positions must lie in 0..9" in page
    assert "no result" in readme(Results.model_validate(results), [])
    summary = printed(print_summary, [Results.model_validate(results)] * 2)
    assert summary.count("no result") == 2


def test_a_task_that_ends_before_the_length_has_no_result(compared):
    """Recall has only 64 keys."""
    _, results = compared("recall", seeds=1, train_length=30, batch_tokens=512, examples=20)
    assert all(
        "at most 64 pairs" in row["summary"]["x3"]["no_result"] for row in results["encodings"]
    )


def test_a_diverged_training_has_no_result_and_no_mean(compared):
    fields = {"learning_rate": 1e30, "clip": 1e30, "encodings": "none,rotary"}
    run, results = compared("reverse", **fields)
    cells = [cell for row in results["encodings"] for cell in row["cells"]]
    assert {cell["status"] for cell in cells} == {"diverged"}
    for row in results["encodings"]:
        assert row["summary"]["x1"]["exact"] == {"mean": None, "values": [None, None]}
        assert row["summary"]["x1"]["no_result"] == "the training diverged"
    assert "diverged after" in (run / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"encodings": "rotary(cross=True)"}, "cross belongs to an encoder-decoder"),
        ({"attention": "elu", "encodings": "rotary,alibi"}, "alibi: attention must be softmax"),
        ({"beam": 3}, "task 'copy' has no beam"),
        ({"data": "x", "mask_ratio": 0.3}, "task 'copy' has no data, mask_ratio"),
        ({"length_multiples": (2, 2)}, "length_multiples must not repeat"),
    ],
)
def test_what_cannot_be_is_refused_before_any_training(fields, said):
    with pytest.raises(ValueError, match=said):
        config_of(**{"task": "copy", "seeds": 1, **fields})


def test_a_preset_of_translation_is_refused_for_other_tasks():
    with pytest.raises(ValueError, match="preset must be default or quick for task 'sort'"):
        make_config("multi30k-cpu", settings={"task": "sort"})
    for field in ("train_length", "length_multiples", "layers", "mask_ratio"):
        with pytest.raises(ValueError, match=f"task 'translation' has no {field}"):
            make_config(settings={field: 1})


def test_a_config_comes_back_from_what_a_run_keeps():
    for task in TASKS:
        config = make_config("quick", settings={"task": task})
        again = type(config).model_validate(json.loads(json.dumps(config.facts())))
        assert again.facts() == config.facts()
