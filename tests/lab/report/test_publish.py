"""Published folders, read back.

These fail if a published folder contains a corpus sentence, differs the next time, or has other
numbers than the run; and if rewriting a README changes more than its words.
"""

from __future__ import annotations

import io
import json
import re
import shutil
from html import escape
from pathlib import Path
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_run import results, typed, write_run

from ropewalk.figures.plot_data import short
from ropewalk.files import readable_json
from ropewalk.lab.published import thinned
from ropewalk.lab.report.formats import format_number
from ropewalk.lab.report.pictures import pictures_of
from ropewalk.lab.report.publish import main, publish
from ropewalk.lab.results import read_results

NAMES = ("bleu", "bleu-by-length", "loss", "attention")


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
def copied(published, tmp_path):
    return Path(shutil.copytree(published, tmp_path / "out"))


def content_of(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def zip_of(content):
    with ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_published_folder(tmp_path, published, facts):
    publish(write_run(tmp_path / "run", facts), tmp_path / "again")
    files = content_of(published)
    assert files == content_of(tmp_path / "again")
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
    for name, content in files.items():
        texts = [content] if not name.endswith(".zip") else zip_of(content).values()
        told = "" if name.endswith(".png") else b"".join(texts).decode()
        assert not re.search("grüß|greets|hello|Mann", told)
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


def test_a_former_picture_of_attention_stays_until_its_weights_are_known(copied, published):
    for scheme in ("light", "dark"):
        (copied / f"attention-{scheme}.png").unlink()
    (copied / "attention.png").write_bytes(b"former")
    main(["--readme", str(copied)])
    text = (copied / "README.md").read_text("utf-8")
    assert "model on one sequence, every head](attention.png)" in text
    main(["--readme", str(copied), "--draw"])
    assert content_of(copied) == content_of(published)


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


@given(
    st.recursive(
        st.text() | st.integers() | st.none(),
        lambda held: st.lists(held) | st.dictionaries(st.text(), held),
    )
)
def test_readable_json_is_json(value):
    assert json.loads(readable_json(value)) == value


def test_what_a_run_imported_is_published_without_its_place(tmp_path, facts):
    """Fails if a path of the user's machine is published."""
    imports = [{"source": "/home/somebody/mine.py", "digest": "0" * 64}]
    given = {**facts, "config": {**facts["config"], "imports": imports}}
    publish(write_run(tmp_path / "run", given), tmp_path / "out")
    (held,) = read_results(tmp_path / "out").config.imports
    assert (held.source, held.digest) == ("mine.py", "0" * 64)
    assert "somebody" not in (tmp_path / "out" / "README.md").read_text("utf-8")
