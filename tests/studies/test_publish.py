"""Published folders, read back, and published results in parts.

These fail if a published folder contains a corpus sentence, differs the next time, or has other
numbers than the run; if rewriting a README changes more than its words; if the order of adding
parts matters, if cells of another comparison are accepted, if a cell counts twice, or if an
encoding is tested with fewer seeds than others.
"""

from __future__ import annotations

import copy
import io
import json
import re
import shutil
from html import escape
from pathlib import Path
from zipfile import ZipFile

import publish as module
import pytest
from cells_here import run_cells_here
from hypothesis import given
from hypothesis import strategies as st
from publish import add, differences, main, parts_of, publish, with_part
from published_files import read_answers
from published_pictures import pictures_of
from published_readme import readme
from synthetic_run import results, typed, write_run
from tiny_tasks import config_of

from ropewalk.figures.plot_data import short
from ropewalk.files import read_json, readable_json, write_json
from ropewalk.lab.published import thinned
from ropewalk.lab.report.formats import format_number
from ropewalk.lab.report.provenance import conditions
from ropewalk.lab.report.verdicts import with_verdicts
from ropewalk.lab.results import Results, read_results
from ropewalk.lab.running import compare as comparison

NAMES = ("bleu", "bleu-by-length", "loss", "attention")
PARTS = {
    "first": {"encodings": "none,rotary", "seeds": (1, 2)},
    "other": {"encodings": "learned", "seeds": (1, 2)},
    "seed": {"encodings": "none,rotary", "seeds": (3,)},
    "whole": {"encodings": "none,rotary,learned", "seeds": (1, 2)},
}


@pytest.fixture(scope="module")
def facts():
    return results()


@pytest.fixture(scope="module")
def published(tmp_path_factory, facts):
    """Return a published folder, to be read only: drawing its pictures takes a second."""
    folder = tmp_path_factory.mktemp("published")
    publish(write_run(tmp_path_factory.mktemp("run"), facts), folder)
    return folder


@pytest.fixture
def undrawn(monkeypatch):
    """Draw no pictures, where they are not the point."""
    monkeypatch.setattr(module, "pictures_of", lambda results: {})


@pytest.fixture
def copied(published, tmp_path):
    return Path(shutil.copytree(published, tmp_path / "out"))


def content_of(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def zip_of(content):
    with ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_published_folder(published, facts):
    files = content_of(published)
    assert set(files) == {
        "README.md",
        "results.json",
        "encodings.zip",
        *(f"{name}-{scheme}.png" for name in NAMES for scheme in ("light", "dark")),
    }
    for name, content in files.items():
        if name.endswith(".png"):
            assert content.startswith(b"\x89PNG")
            assert len(content) < 150_000
        else:
            texts = zip_of(content).values() if name.endswith(".zip") else [content]
            assert not re.search("grüß|greets|hello|Mann", b"".join(texts).decode())
    encodings = [f"encodings/{row['slug']}.json" for row in facts["encodings"]]
    assert list(zip_of(files["encodings.zip"])) == sorted(encodings)


def test_the_readme_tells_the_numbers(published, facts):
    text = (published / "README.md").read_text(encoding="utf-8")
    assert facts["command"] in text
    for row in facts["encodings"]:
        mean = format_number(row["summary"]["test"]["bleu"]["mean"])
        (line,) = re.findall(
            rf"^\| {re.escape(row['name'])}<br>[^|]* \| {mean}<br>.*",
            text,
            re.M,
        )
        assert all(format_number(v) in line for v in row["summary"]["test"]["bleu"]["values"])
    assert "| better |" in text
    assert "| worse |" in text
    assert "corpus &lt;ä&gt;" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1


def test_the_readme_shows_both_schemes_and_says_the_numbers(published, facts):
    text = (published / "README.md").read_text(encoding="utf-8")
    drawn = pictures_of(read_results(published))
    assert set(drawn) == set(NAMES)
    for name, picture in drawn.items():
        assert (
            f'srcset="{name}-dark.png">\n  <img alt="{escape(picture.alt)}" src="{name}-light'
            in text
        )
    for row in facts["encodings"]:
        mean = row["summary"]["test"]["bleu"]["mean"]
        assert mean is None or f"{row['name']}, {short(mean)} (" in drawn["bleu"].alt


@pytest.mark.slow
def test_a_former_picture_of_attention_stays_until_its_weights_are_known(copied, published):
    for scheme in ("light", "dark"):
        (copied / f"attention-{scheme}.png").unlink()
    (copied / "attention.png").write_bytes(b"former")
    main(["--readme", str(copied)])
    text = (copied / "README.md").read_text("utf-8")
    assert "model on one sequence, every head](attention.png)" in text
    main(["--readme", str(copied), "--draw"])
    assert content_of(copied) == content_of(published)


@pytest.mark.usefixtures("undrawn")
def test_the_same_run_gives_the_same_bytes(tmp_path, published, facts):
    """Pictures are drawn again in the test above."""
    publish(write_run(tmp_path / "run", facts), tmp_path / "out")
    for name in ("results.json", "encodings.zip"):
        assert (tmp_path / "out" / name).read_bytes() == (published / name).read_bytes()


@pytest.mark.usefixtures("undrawn")
def test_the_published_numbers_are_the_run_s(tmp_path):
    whole = results(diverged=False)
    publish(write_run(tmp_path / "run", whole), tmp_path / "out")
    found = read_results(tmp_path / "out")
    for row in whole["encodings"]:
        for cell in row["cells"]:
            cell["training"] = thinned(cell["training"])
    read = found.as_json()
    for row in read["encodings"]:
        assert row.pop("attention")["seed"] == 1
    assert found.config == typed(whole).config
    assert read | {"config": None} == whole | {"config": None}


def test_a_run_that_is_not_finished_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"run must be a finished run's folder, got .*no results\.json"
    ):
        publish(tmp_path, tmp_path / "out")


def test_a_readme_is_written_anew_and_nothing_else(copied, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = content_of(copied)
    (copied / "README.md").write_text("old words", encoding="utf-8")
    overview = tmp_path / "OVERVIEW.md"
    overview.write_text("kept\n<!-- result: out -->\nold\n<!-- end -->\nkept too\n", "utf-8")
    main(["--readme", "out", "--overview", "OVERVIEW.md"])
    assert content_of(copied) == before
    text = overview.read_text("utf-8")
    assert "| baseline |" in text
    assert text.startswith("kept\n")
    assert text.endswith("<!-- end -->\nkept too\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--readme", "."], "folder must contain a published comparison"),
        (["run", "--readme", "."], "take only their own folders"),
        (["run"], "give a run and a folder"),
        (["run", "out", "--draw"], "--draw needs --readme"),
    ],
)
def test_a_mistyped_command_is_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(words)
    assert message in capsys.readouterr().err


LEAVES = st.text() | st.integers() | st.none()


@given(st.dictionaries(st.text(), LEAVES | st.lists(LEAVES | st.dictionaries(st.text(), LEAVES))))
def test_readable_json_is_json(value):
    assert json.loads(readable_json(value)) == value


@pytest.mark.usefixtures("undrawn")
def test_what_a_run_imported_is_published_without_its_place(tmp_path, facts):
    """Fails if a path of the user's machine is published."""
    imports = [{"source": "/home/somebody/mine.py", "digest": "0" * 64}]
    given = {**facts, "config": {**facts["config"], "imports": imports}}
    publish(write_run(tmp_path / "run", given), tmp_path / "out")
    (held,) = read_results(tmp_path / "out").config.imports
    assert (held.source, held.digest) == ("mine.py", "0" * 64)
    assert "somebody" not in (tmp_path / "out" / "README.md").read_text("utf-8")


TRIALS = [
    {"settings": {"learning_rate": 0.1}, "seed": 1, "status": "finished", "validation_loss": 2.0}
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Published results of each part, in memory, and the run's folder."""
    facts = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "run_cells", run_cells_here)
        patch.setattr(module, "pictures_of", lambda results: {})
        for name, fields in PARTS.items():
            run, folder = (tmp_path_factory.mktemp(name) for _ in range(2))
            for part in ("first", "other") if name == "whole" else ():  # trains no cell again
                shutil.copytree(facts[part]["run"] / "cells", run / "cells", dirs_exist_ok=True)
            config = config_of("copy", test_examples=12, **fields)
            comparison.compare(config, run, command=["ropewalk", "compare", name])
            publish(run, folder)
            facts[name] = read_results(folder).as_json() | {"run": run}
    return facts


def results_of(made, name):
    return copy.deepcopy({key: held for key, held in made[name].items() if key != "run"})


def whole_of(made, *names):
    """Return results with the cells of these parts, added in this order."""
    whole, *others = (results_of(made, name) for name in names)
    for part in others:
        whole = with_part(whole, part)
    return whole


def in_order(facts, names):
    """Return results with their rows in this order, and new verdicts."""
    rows = {row["name"]: row for row in facts["encodings"]}
    facts["encodings"] = [rows[name] for name in names]
    facts["config"]["encodings"] = list(names)
    for row in rows.values():
        for summary in row["summary"].values():
            summary.pop("versus_first")
    return with_verdicts(Results.model_validate(facts)).as_json()


def test_the_order_of_adding_does_not_matter(made):
    names, parts = ("none", "rotary", "learned"), ("first", "other", "seed")
    orders = (parts, parts[::-1], ("other", "first", "seed"))
    one, *others = (in_order(whole_of(made, *order), names) for order in orders)
    assert others == [one, one]
    assert [len(row["cells"]) for row in one["encodings"]] == [3, 3, 2]


def test_parts_are_the_whole(made):
    facts, whole = whole_of(made, "first", "other"), results_of(made, "whole")
    assert facts["encodings"] == whole["encodings"]
    assert facts["config"] == whole["config"]
    assert facts["command"] == "ropewalk compare first\nropewalk compare other"
    told = dict(conditions(Results.model_validate(facts)))
    assert told["Part 1"] == "none and rotary, seeds 1, 2"
    assert told["Part 2, command"] == "ropewalk compare other"
    assert "Part 2, duration" in told


def test_a_readme_says_at_how_many_commits_its_parts_were_run(made):
    first, other = (results_of(made, name) | {"commit": "0" * 40} for name in ("first", "other"))
    assert "commits of the code" not in readme(Results.model_validate(with_part(first, other)), [])
    whole = Results.model_validate(with_part(first, other | {"commit": "1" * 40}))
    said = "same. The comparison was run in parts. They were scored at 2 commits of the code"
    assert said in readme(whole, [])


def test_a_duration_that_training_exceeds_says_so(made):
    """Fails if a page lists a start and a duration that cannot hold all of its training."""
    results = results_of(made, "first")
    said = "without earlier calls"
    results["machine"]["cells_at_once"], results["duration_s"] = 1, 1e6
    assert said not in dict(conditions(Results.model_validate(results)))["Duration"]
    results["duration_s"] = 0.001
    assert said in dict(conditions(Results.model_validate(results)))["Duration"]


def test_a_cell_that_comes_again_replaces_the_old(made):
    part = results_of(made, "first")
    part["command"], part["started"] = "again", "2100-01-01"
    part["encodings"] = part["encodings"][1:]
    part["encodings"][0]["cells"] = part["encodings"][0]["cells"][:1]
    part["encodings"][0]["cells"][0]["validation_loss"] = 7.0
    results = with_part(results_of(made, "first"), part)
    row = results["encodings"][1]
    assert row["validation_loss"]["values"][0] == 7.0
    assert [cell["seed"] for cell in row["cells"]] == [1, 2]
    first, again = parts_of(results)
    assert first["cells"] == {"none": [1, 2], "rotary": [2]}
    assert again["cells"] == {"rotary": [1]}
    # All cells again: one part is left, so the results have no list of parts.
    last = with_part(results, results_of(made, "first") | {"command": "last"})
    assert "parts" not in last
    assert last["command"] == "last"


@pytest.mark.slow
def test_an_encoding_that_lacks_a_seed_is_not_tested(made, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "pictures_of", lambda results: {})
        publish(made["first"]["run"], tmp_path)
        add(made["other"]["run"], tmp_path)
    learned = read_results(tmp_path).encodings[2]
    assert learned.summary["x1"].versus_first.p > 0
    main([str(made["seed"]["run"]), str(tmp_path), "--add"])
    results = read_results(tmp_path)
    none, rotary, learned = results.encodings
    for split in results.splits:
        assert learned.summary[split].versus_first is None
        assert rotary.summary[split].versus_first.p > 0
    text = (tmp_path / "README.md").read_text("utf-8")
    assert "learned lacks seed 3, which others have, so it is not tested." in text
    assert "fewer than 10" not in text
    assert "2 to 3 seeds each" in text
    assert len(none.attention.weights) == 1
    assert (tmp_path / "attention-light.png").exists()
    answers = [name for name in read_answers(tmp_path) if "/rotary/" in name]
    assert answers == [
        f"hypotheses/rotary/seed-{seed}.{split}.txt" for seed in (1, 2, 3) for split in ("x1", "x3")
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda part: part["config"].update(learning_rate=0.5),
            "config learning_rate is 0.5, published",
        ),
        (lambda part: part.update(data_digest="0"), "data_digest is '0'"),
        (lambda part: part.update(task="sort"), "task is sort, published copy"),
        (lambda part: part["versions"].update(torch="1.0"), "torch is '1.0', published"),
        (lambda part: part["machine"].update(precision="bfloat16"), "precision is 'bfloat16'"),
        (lambda part: part["encodings"][0].update(settings={"a": 1}), "none: settings is {'a': 1}"),
        (lambda part: part["corpus"].update(name="x" * 900), "corpus is {'name': 'xxx"),
        (lambda part: part["corpus"]["facts"][0].__setitem__(1, "987 items"), "corpus is {"),
    ],
)
def test_another_comparison_is_refused(made, change, message):
    part = results_of(made, "seed")
    change(part)
    with pytest.raises(ValueError, match="run must be of the same comparison") as caught:
        with_part(results_of(made, "first"), part)
    assert message in str(caught.value)
    assert "publish it into a folder of its own" in str(caught.value)
    assert len(str(caught.value)) < 600


def test_what_changes_no_score_may_differ(made):
    part = results_of(made, "seed")
    part["config"] |= {"preset": "quick", "device": "cuda", "data": "elsewhere"}
    part["versions"] |= {"torch": part["versions"]["torch"].partition("+")[0] + "+cu130"}
    part["corpus"]["facts"] = [
        [f"{name} again", f"now {text}"] for name, text in part["corpus"]["facts"]
    ]
    for row in part["encodings"]:
        row["trials"] = TRIALS
    assert differences(results_of(made, "first"), part) == []
    results = with_part(results_of(made, "first"), part)
    assert [row["trials"] for row in results["encodings"]] == [TRIALS, TRIALS]


@pytest.mark.usefixtures("undrawn")
def test_a_refused_run_leaves_the_folder_as_it_was(made, tmp_path, capsys):
    publish(made["first"]["run"], tmp_path)
    held = read_json(tmp_path / "results.json")
    held["versions"]["torch"] = "1.0"
    write_json(tmp_path / "results.json", held)
    before = content_of(tmp_path)
    with pytest.raises(SystemExit):
        main([str(made["seed"]["run"]), str(tmp_path), "--add"])
    assert "torch is" in capsys.readouterr().err
    assert content_of(tmp_path) == before


def tuned_by(results, rate):
    """Return results in the form of a sweep's."""
    results["config"]["sweep"] = {"learning_rate": [0.1, 0.2]}
    for row in results["encodings"]:
        row["settings"] = {"learning_rate": rate}
    return results


def test_an_encoding_that_was_not_tuned_is_not_put_among_those_that_were(made):
    """Fails if encodings with different tuning budgets are compared."""
    tuned, plain = tuned_by(results_of(made, "first"), 0.1), results_of(made, "other")
    with pytest.raises(ValueError, match="config sweep is"):
        with_part(tuned, plain)
    with pytest.raises(ValueError, match="config sweep is"):
        with_part(results_of(made, "first"), tuned_by(plain, 0.1))


def test_a_tuned_encoding_is_replaced_whole_or_not_at_all(made):
    """Fails if cells are combined with trials of other seeds."""
    tuned = tuned_by(results_of(made, "first"), 0.1)
    with pytest.raises(ValueError, match="were chosen with all of its seeds"):
        with_part(tuned, tuned_by(results_of(made, "seed"), 0.1))
    again = tuned_by(results_of(made, "whole"), 0.1)
    for row in again["encodings"]:
        row["trials"] = TRIALS
    rows = {row["name"]: row for row in with_part(tuned, again)["encodings"]}
    assert rows["none"]["trials"] == TRIALS


@pytest.mark.usefixtures("undrawn")
def test_published_results_judged_anew_say_the_same(made, tmp_path, monkeypatch):
    """Fails if the test from published numbers is another than that of the run itself."""
    publish(made["whole"]["run"], tmp_path)
    before = read_json(tmp_path / "results.json")
    monkeypatch.setattr(module, "score_pictures", lambda results: {})
    main(["--retest", str(tmp_path), "--against", "rotary"])
    after = read_json(tmp_path / "results.json")
    assert after["against"] == ["rotary"]
    for old, new in zip(before["encodings"], after["encodings"], strict=True):
        for split in before["splits"]:
            assert new["summary"][split].pop("versus") is not None
            assert new["summary"][split] == old["summary"][split]
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "### Compared with rotary" in readme
