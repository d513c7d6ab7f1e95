"""The form of a published folder, written and read.

These fail where a number does not survive, where a list is taken for another, and where a damaged
file is read or is refused in more than a line.
"""

from __future__ import annotations

import copy
import json
import math
from zipfile import ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_files import ANSWERS, pack, read_answers, split_results, write_published
from sentences import spoilt, text

from ropewalk.files import read_json
from ropewalk.lab import published
from ropewalk.lab.published import ARCHIVE, thinned, unpack, whole_results
from ropewalk.lab.scoring.bleu import bleu_statistics, sentence_scores

number = st.none() | st.integers(0, 10**9) | st.floats(allow_nan=False, allow_infinity=False)
real = st.integers(-40, 40) | st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def curves(draw):
    columns = draw(st.sets(st.sampled_from(["seconds", "gradient"])))
    points = st.fixed_dictionaries(
        {"step": st.integers(0), "loss": number, **dict.fromkeys(columns, number)}
    )
    return draw(st.lists(points, max_size=60))


@st.composite
def whole(draw):
    """Results of one task with made-up facts: what the form does not know, it carries through."""
    items = draw(st.integers(1, 5))
    column = st.lists(real, min_size=items, max_size=items) | st.lists(
        st.integers(0, 35), min_size=items, max_size=items
    )
    scores = st.fixed_dictionaries(
        {"exact": real, "statistics": st.fixed_dictionaries({"exact": column, "tokens": column})}
    ) | st.fixed_dictionaries({"no_result": st.text()})
    cell = st.fixed_dictionaries(
        {
            "training": curves(),
            "validation": curves(),
            "scores": st.fixed_dictionaries({"x1": scores}),
        },
        optional={"later": st.text()},
    )
    names = draw(st.lists(st.sampled_from(["none", "rotary", "t5"]), min_size=1, unique=True))
    rows = [
        {
            "name": name,
            "slug": name,
            "settings": draw(st.dictionaries(st.text(), real)),
            "cells": [{"seed": seed, **draw(cell)} for seed in range(draw(st.integers(1, 2)))],
        }
        for name in names
    ]
    return {**PLAIN, "config": {"sweep": draw(st.text())}, "encodings": rows}


@pytest.mark.slow
@given(whole())
@settings(max_examples=30, deadline=None)
def test_what_is_written_is_read(tmp_path_factory, results):
    folder = tmp_path_factory.mktemp("published")
    kept = copy.deepcopy(results)
    answers = {f"{ANSWERS}/none/seed-1.x1.txt": b"=\n"}
    write_published(folder, results, answers)
    assert results == kept  # nothing was changed on the way
    assert read_answers(folder) == answers
    found = read_back(folder)
    assert json.dumps(found, sort_keys=True) == json.dumps(results, sort_keys=True)
    facts, _ = split_results(results)
    assert all("training" not in cell for row in facts["encodings"] for cell in row["cells"])


def test_cells_whose_statistics_are_equal_in_value_alone_stay_apart(tmp_path):
    """Fails if a cell's 0.0 is read back as the 0 of another cell."""
    cells = [
        {"seed": seed, "training": [], "validation": [], "scores": {"x1": scores}}
        for seed, scores in enumerate(
            {"exact": 0, "statistics": {"exact": [value], "tokens": [value]}} for value in (0, 0.0)
        )
    ]
    results = {**PLAIN, "encodings": [{"name": "none", "slug": "none", "cells": cells}]}
    write_published(tmp_path, results, {})
    assert json.dumps(read_back(tmp_path), sort_keys=True) == json.dumps(results, sort_keys=True)


@given(st.lists(st.integers(-2, 40) | st.floats(0, 1) | st.booleans()))
def test_a_list_is_packed_and_unpacked(values):
    packed = pack(values)
    assert isinstance(packed, str) == all(type(v) is int and 0 <= v <= 35 for v in values)
    if not any(isinstance(value, bool) for value in values):
        assert [(type(v), v) for v in unpack(packed)] == [(type(v), v) for v in values]


@given(curves(), st.integers(1, 20))
def test_a_thinned_curve_is_short_and_keeps_its_mean(points, most):
    found = thinned(points, most)
    assert len(found) <= most
    assert found[-1:] == [] or found[-1]["step"] == points[-1]["step"]
    assert thinned(found, most) == found
    if len(points) <= most:
        assert found == points


def test_bleu_of_sentences_follows_from_their_statistics():
    references = [*text(60), "Ein Wort", "Ja", "Ja"]
    hypotheses = [*spoilt(references[:60], 0.4, 1), "Ein Wort", "", "Ja Ja Ja"]
    statistics, expected = bleu_statistics(hypotheses, references)
    columns = statistics.long().t().tolist()
    found = sentence_scores(columns[0], columns[1], columns[2:6])
    assert all(math.isclose(*pair, rel_tol=1e-12) for pair in zip(found, expected, strict=True))


CELL = {
    "seed": 1,
    "training": [{"step": 1, "loss": 2.5}],
    "validation": [],
    "scores": {"x1": {"statistics": {"exact": [0, 1], "tokens": [4, 50]}}},
}
PLAIN = {
    "task": "copy",
    "splits": ["x1"],
    "encodings": [{"name": "rotary", "slug": "rotary", "cells": [CELL]}],
}
ROTARY = "encodings/rotary.json"


def rewrite(folder, files):
    with ZipFile(folder / ARCHIVE, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def read_back(folder):
    return whole_results(folder, read_json(folder / "results.json"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"rotary"', '"t5"', "it is of 't5', not of rotary"),
        ('"exact":"01"', '"exact":"010"', "statistics of 2 and of 3 items"),
        ('"exact":"01"', '"exact":"0!"', "must be numbers, or a string of 0-9 and a-z"),
        ('"exact":"01"', '"exact":[0,"x"]', "must be numbers, or a string"),
        ('"seed": 1', '"seed": 2', "lacks 1"),
        ('"loss":[2.5]', '"loss":[]', "is not as published"),
        ('"loss":[2.5]', '"loss":"2"', "training must have a list for each quantity"),
        ('"cells"', '"others"', "lacks 'cells'"),
        ("}", "", "is not JSON"),
    ],
)
def test_a_damaged_file_is_refused_in_a_line(tmp_path, old, new, message):
    write_published(tmp_path, PLAIN, {})
    with ZipFile(tmp_path / ARCHIVE) as archive:
        text = archive.read(ROTARY).decode()
    assert old in text
    rewrite(tmp_path, {ROTARY: text.replace(old, new).encode()})
    with pytest.raises(ValueError, match=r"rotary\.json in .*encodings\.zip") as caught:
        read_back(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_archive_is_refused_in_a_line(tmp_path, monkeypatch):
    write_published(tmp_path, PLAIN, {})
    path = tmp_path / ARCHIVE
    content = path.read_bytes()
    middle = len(content) // 3
    spoilt_middle = content[:middle] + bytes(b ^ 1 for b in content[middle : middle + 9])
    spoilt_middle += content[middle + 9 :]
    for damaged in (b"", b"no archive", content[: len(content) // 2], spoilt_middle):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged: .*; restore it from version control"):
            read_back(tmp_path)
    path.write_bytes(content)
    with monkeypatch.context() as patch:
        patch.setattr(published, "MOST_JSON_BYTES", 20)
        with pytest.raises(ValueError, match=r"rotary\.json in .* bytes, but at most 20"):
            whole_results(tmp_path, split_results(PLAIN)[0])
    rewrite(tmp_path, {"encodings/other.json": b"{}"})
    with pytest.raises(ValueError, match=r"rotary\.json in .*: no such file; restore it"):
        read_back(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match="no such file; restore it from version control"):
        read_back(tmp_path)


def test_the_archive_depends_on_nothing_but_its_files(tmp_path):
    """Fails if the time, or the order in which answers were found, changes the bytes."""
    answers = {f"{ANSWERS}/b/seed-1.x1.txt": b"b\n", f"{ANSWERS}/a/seed-1.x1.txt": b"a\n"}
    write_published(tmp_path / "one", PLAIN, answers)
    write_published(tmp_path / "two", PLAIN, dict(sorted(answers.items())))
    path = tmp_path / "one" / ARCHIVE
    assert path.read_bytes() == (tmp_path / "two" / ARCHIVE).read_bytes()
    with ZipFile(path) as archive:
        assert [entry.filename for entry in archive.infolist()] == [ROTARY, *sorted(answers)]
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_a_form_of_the_future_is_refused(tmp_path):
    with pytest.raises(ValueError, match="format must be 1, got 2"):
        whole_results(tmp_path, {"format": 2})


@pytest.mark.parametrize("slug", ["../results", None, "a/b"])
def test_a_slug_names_no_other_folder(tmp_path, slug):
    write_published(tmp_path, PLAIN, {})
    facts, _ = split_results(PLAIN)
    facts["encodings"][0]["slug"] = slug
    with pytest.raises(ValueError, match="slug must name a file of encodings/"):
        whole_results(tmp_path, facts)


def test_cells_that_results_do_not_have_are_left_alone(tmp_path):
    """They are of an addition that was broken off before its last file."""
    bulks = split_results(PLAIN)[1]
    write_published(tmp_path, PLAIN, {})
    bulk = bulks["rotary"]
    bulk["cells"].append({**bulk["cells"][0], "seed": 2})
    rewrite(tmp_path, {ROTARY: json.dumps(bulk).encode()})
    assert read_back(tmp_path) == PLAIN
