"""Published results in parts.

These fail if the order of adding matters, if cells of another comparison are accepted, if a cell
counts twice, or if an encoding is tested with fewer seeds than others.
"""

from __future__ import annotations

import copy

import pytest
from cells_here import run_cells_here
from tiny_tasks import config_of

from ropewalk.files import read_json, write_json
from ropewalk.lab.published import read_answers
from ropewalk.lab.report.parts import differences, parts_of, with_part
from ropewalk.lab.report.provenance import conditions
from ropewalk.lab.report.publish import add, main, publish
from ropewalk.lab.report.readme import readme
from ropewalk.lab.report.verdicts import with_verdicts
from ropewalk.lab.results import Results, read_results
from ropewalk.lab.running import compare as comparison

PARTS = {
    "first": {"encodings": "none,rotary", "seeds": (1, 2)},
    "other": {"encodings": "alibi", "seeds": (1, 2)},
    "seed": {"encodings": "none,rotary", "seeds": (3,)},
    "whole": {"encodings": "none,rotary,alibi", "seeds": (1, 2)},
}


TRIALS = [
    {"settings": {"learning_rate": 0.1}, "seed": 1, "status": "finished", "validation_loss": 2.0}
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Published results of each part, in memory."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "run_cells", run_cells_here)
        for name, fields in PARTS.items():
            run, folder = (tmp_path_factory.mktemp(name) for _ in range(2))
            config = config_of("copy", test_examples=12, **fields)
            comparison.compare(config, run, command=["ropewalk", "compare", name])
            publish(run, folder)
            found[name] = read_results(folder).as_json() | {"run": run}
    return found


def results_of(made, name):
    return copy.deepcopy({key: held for key, held in made[name].items() if key != "run"})


def in_order(results, names):
    """Return results with their rows in this order, and new verdicts."""
    rows = {row["name"]: row for row in results["encodings"]}
    results["encodings"] = [rows[name] for name in names]
    results["config"]["encodings"] = list(names)
    for row in rows.values():
        for summary in row["summary"].values():
            summary.pop("versus_first")
    return with_verdicts(Results.model_validate(results)).as_json()


def without_times(value):
    """Return facts without the fields that differ between trainings of the same cell."""
    timed = ("seconds", "train_seconds", "tokens_per_s", "peak_memory_bytes", "decode_seconds")
    if isinstance(value, dict):
        return {k: without_times(held) for k, held in value.items() if k not in timed}
    return [without_times(held) for held in value] if isinstance(value, list) else value


def test_the_order_of_adding_does_not_matter(made):
    names, parts = ("none", "rotary", "alibi"), ("first", "other", "seed")
    found = []
    for order in (parts, parts[::-1], ("other", "first", "seed")):
        results = results_of(made, order[0])
        for name in order[1:]:
            results = with_part(results, results_of(made, name))
        found.append(in_order(results, names))
    assert found[0] == found[1] == found[2]
    assert [len(row["cells"]) for row in found[0]["encodings"]] == [3, 3, 2]


def test_parts_are_the_whole(made):
    results = with_part(results_of(made, "first"), results_of(made, "other"))
    whole = results_of(made, "whole")
    assert without_times(results["encodings"]) == without_times(whole["encodings"])
    assert results["config"] == whole["config"]
    assert results["command"] == "ropewalk compare first\nropewalk compare other"
    told = dict(conditions(Results.model_validate(results)))
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


def test_an_encoding_that_lacks_a_seed_is_not_tested(made, tmp_path):
    publish(made["first"]["run"], tmp_path)
    part = with_part(results_of(made, "first"), results_of(made, "other"))
    assert part["encodings"][2]["summary"]["x1"]["versus_first"]["p"] > 0
    add(made["other"]["run"], tmp_path)
    main([str(made["seed"]["run"]), str(tmp_path), "--add"])
    results = read_results(tmp_path)
    none, rotary, alibi = results.encodings
    for split in results.splits:
        assert alibi.summary[split].versus_first is None
        assert rotary.summary[split].versus_first.p > 0
    text = (tmp_path / "README.md").read_text("utf-8")
    assert "alibi lacks seed 3, which others have, so it is not tested." in text
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


def test_a_refused_run_leaves_the_folder_as_it_was(made, tmp_path, capsys):
    publish(made["first"]["run"], tmp_path)
    held = read_json(tmp_path / "results.json")
    held["versions"]["torch"] = "1.0"
    write_json(tmp_path / "results.json", held)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit):
        main([str(made["seed"]["run"]), str(tmp_path), "--add"])
    assert "torch is" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


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
