"""Run folders of earlier versions, made by writing former names into the files of a tiny run.

These fail if such a run is trained anew, goes on from another state, or can no longer be
translated with, published or studied; or if a former name typed today is not answered with the
present one.
"""

import json
import os
import shutil

import pytest
import torch
from cells_here import run_cells_here
from safetensors import safe_open
from safetensors.torch import save_file
from scripts import load_scripts

from ropewalk.files import read_json, write_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.decoding.translator import Translator
from ropewalk.lab.former_names import (
    current_command,
    current_encoding,
    current_results,
    former_encoding,
)
from ropewalk.lab.report.publish import publish
from ropewalk.lab.results import read_results
from ropewalk.lab.running import compare as comparison
from ropewalk.lab.running.run_folder import prepare
from ropewalk.lab.training.trainer import Trainer

# What an earlier version wrote has no checksums, and is read with a warning that says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*without a checksum")

extrapolation, sharpness = load_scripts("studies", "extrapolation", "sharpness")

FIELDS = {
    "train_length": "length",
    "length_multiples": "multiples",
    "test_examples": "tested",
    "mask_ratio": "masked",
    "max_tokens": "longest",
}
ENCODINGS = ("learned(max_positions=40)", "sinusoidal+t5", "rotary")
TINY = {
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "dropout": 0.1,
    "batch_tokens": 64,
    "validations": 2,
    "precision": "float32",
    "device": "cpu",
    "seeds": 1,
    "encodings": ENCODINGS,
}
SIZES = {"layers": 1, "train_length": 3, "length_multiples": (1, 2), "test_examples": 12}
COPY = {"task": "copy", "examples": 60, **SIZES}
MASKED = {"task": "masked-lm", "examples": 3, "vocabulary": 120, **SIZES, "mask_ratio": 0.2}
TRANSLATION = {
    "vocabulary": 80,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_tokens": 50,
    "beam": 1,
    "average": 2,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    words = [("Hund", "dog"), ("Vogel", "bird"), ("Mann", "man"), ("Baum", "tree")]
    pairs = [
        (f"Der {a} sieht den {b}.", f"The {x} sees the {y}.") for a, x in words for b, y in words
    ]
    for name, rows in (("train", pairs), ("val", pairs[:6]), ("test", pairs[2:14])):
        for side, language in enumerate(("de", "en")):
            lines = "".join(f"{pair[side]}\n" for pair in rows)
            (folder / f"{name}.{language}").write_text(lines, encoding="utf-8")
    return folder


def compare(config, run):
    """Run a comparison, its cells one after another in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "run_cells", run_cells_here)
        return comparison.compare(config, run, command=["ropewalk", "compare", "train_length=3"])


def with_former_names(value):
    """Write JSON data as an earlier version did; no present name is left in it."""
    text = (
        json.dumps(value)
        .replace("max_positions=", "longest=")
        .replace('"tested_metric"', '"tested"')
    )
    for present, former in FIELDS.items():
        text = text.replace(f'"{present}"', f'"{former}"').replace(f"{present}=", f"{former}=")
    assert not any(name in text for name in (*FIELDS, "max_positions", "tested_metric"))
    return json.loads(text)


def without_checksum(facts):
    """Leave out what earlier versions did not write."""
    if isinstance(facts, dict):
        facts = {k: v for k, v in facts.items() if k not in ("checksum", "made_from", "tokenizer")}
    return facts


def make_former(run):
    """Turn a run folder into one of an earlier version."""
    for path in run.rglob("*.json"):
        if path.name not in ("tokenizer.json",):
            facts = with_former_names(without_checksum(read_json(path)))
            write_json(path, facts["sittings"] if path.name == "sittings.json" else facts)
    for path in run.rglob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            facts = with_former_names(without_checksum(json.loads(file.metadata()["facts"])))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        save_file(tensors, path, {"facts": json.dumps(facts)})
    for folder in list(run.glob("cells/*max-positions*")):
        folder.rename(str(folder).replace("max-positions", "longest"))


def state(run):
    return {path: path.stat().st_mtime_ns for path in (run / "cells").rglob("*.*")}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, corpus):
    """Give a finished run of an earlier version for each task, and its config of today."""
    found = {}
    for fields in (COPY, MASKED, {**TRANSLATION, "data": str(corpus)}):
        config = make_config(settings={**TINY, **fields})
        run = tmp_path_factory.mktemp(config.task)
        compare(config, run)
        make_former(run)
        found[config.task] = (run, config)
    return found


@pytest.mark.parametrize("task", ["copy", "masked-lm", "translation"])
def test_a_finished_run_is_kept(runs, tmp_path, task):
    """Fails if the same command, under present names, trains or scores anything again."""
    run, config = shutil.copytree(runs[task][0], tmp_path / "run"), runs[task][1]
    assert (run / "cells" / "learned-longest-40").exists()
    before, numbers = state(run), read_results(run)["encodings"]
    for scores in (
        split for row in numbers for cell in row["cells"] for split in cell["scores"].values()
    ):
        scores.pop("hypotheses_sha256", None)  # of which earlier versions kept no note
    results = compare(config, run)
    assert state(run) == before
    assert [row["name"] for row in results["encodings"]] == list(ENCODINGS)
    for row, former in zip(results["encodings"], numbers, strict=True):
        assert row["cells"] == former["cells"]
        assert row["summary"] == former["summary"]
    held = read_json(run / "config.json")
    assert not held.keys() & set(FIELDS.values())


@pytest.mark.parametrize("encoding", ["learned(max_positions=40)", "rotary"])
def test_a_training_goes_on_bit_for_bit(tmp_path, encoding):
    """Fails if what an earlier version began is begun again, or ends in other weights."""
    config = make_config(settings={**TINY, **COPY, "encodings": encoding, "epochs": 2})
    whole = Trainer(prepare(config, tmp_path / "whole"), encoding, 1, tmp_path / "whole" / "cell")
    record = whole.run()

    def stop(record, loss):
        if record.step == record.steps // 2:
            os.kill(os.getpid(), 2)  # Ctrl-C

    run = tmp_path / "parts"
    task = prepare(config, run)
    with pytest.raises(KeyboardInterrupt):
        Trainer(task, encoding, 1, Cell(encoding, 1).folder(run)).run(stop)
    make_former(run)
    task = prepare(config, run)
    again = Trainer(task, encoding, 1, Cell(encoding, 1).folder(run))
    assert again.record.step == record.steps // 2
    assert [p["loss"] for p in again.run().training] == [p["loss"] for p in record.training]
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_another_config_is_still_refused(runs, tmp_path):
    """Fails if a former name hides a difference."""
    run, config = shutil.copytree(runs["copy"][0], tmp_path / "run"), runs["copy"][1]
    with pytest.raises(ValueError, match="train_length is 3 there and 4 here"):
        prepare(config.model_copy(update={"train_length": 4}), run)


def test_it_translates(runs):
    run, _ = runs["translation"]
    model = Translator.load(run / "cells" / "learned-longest-40")
    assert len(model(["Der Hund sieht den Baum.", ""])) == 2


@pytest.mark.slow
def test_it_is_published_under_present_names(runs, tmp_path):
    for run, _ in runs.values():
        publish(run, tmp_path / run.name)
        readme = (tmp_path / run.name / "README.md").read_text(encoding="utf-8")
        assert "longest=" not in readme
        assert "learned(max\\_positions=40)" in readme or "learned(max_positions=40)" in readme
        assert "ropewalk compare train_length=3" in readme
        results = read_json(tmp_path / run.name / "results.json")
        assert "tested" not in results
        assert results["tested_metric"] in {metric["key"] for metric in results["metrics"]}
        assert not results["config"].keys() & set(FIELDS.values())


def test_it_is_studied(runs, tmp_path):
    extrapolation.main([str(runs["copy"][0]), "--out", str(tmp_path / "lengths")])
    (found,) = read_json(tmp_path / "lengths" / "results.json")["runs"]
    assert list(found["rows"]) == list(ENCODINGS)
    sharpness.main([str(runs["translation"][0]), "--out", str(tmp_path / "layers")])
    found = read_json(tmp_path / "layers" / "results.json")["encodings"]
    assert [len(found[name]) for name in ENCODINGS] == [1, 1, 1]


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("learned(longest=512)", "learned(max_positions=512)"),
        ("tupe(relative=True,longest=8)", "tupe(relative=True,max_positions=8)"),
        ("learned(longest=9)+t5", "learned(max_positions=9)+t5"),
        ("rotary+learned(longest=9)", "rotary+learned(max_positions=9)"),
    ],
)
def test_arguments_of_encodings(former, present):
    assert current_encoding(former) == present == current_encoding(present)
    assert former_encoding(present) == former


@pytest.mark.parametrize("name", ["fire(length=64)", "mine(longest=3)", "unlearned(longest=3)"])
def test_arguments_of_others_are_left_alone(name):
    assert current_encoding(name) == former_encoding(name) == name


def test_a_command_under_present_names():
    former = "ropewalk compare --encodings 'fire(length=64),tupe(longest=9)' multiples=1,2 length=8"
    present = (
        "ropewalk compare --encodings 'fire(length=64),tupe(max_positions=9)' "
        "length_multiples=1,2 train_length=8"
    )
    assert current_command(former) == present == current_command(present)


def test_results_keep_every_other_key():
    results = {"tested": "loss", "lengths": {"trained": 8}, "corpus": {"longest_in_training": 3}}
    assert current_results(results) == {
        "tested_metric": "loss",
        "lengths": {"trained": 8},
        "corpus": {"longest_in_training": 3},
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        *(
            ({f: 1}, f"'{f}' is not a field of a config; it is now '{p}'")
            for p, f in FIELDS.items()
        ),
        ({"encodings": "learned(longest=9)"}, r"it is learned\(max_positions=9\) now"),
    ],
)
def test_a_former_name_typed_today_is_answered_with_the_present_one(settings, said):
    with pytest.raises(ValueError, match=said) as raised:
        make_config(settings=settings)
    assert "did you mean" not in str(raised.value) or "encodings" in settings
