"""Every JSON file that a run reads back: a changed character is an error that names it.

These fail if what was damaged or edited is taken for what was written, if the way out is not said,
or if a file of an earlier version, or a published one, is no longer read.
"""

import warnings

import pytest
from cells_here import run_cells_here
from tiny_tasks import config_of
from tokenizers import Tokenizer

from ropewalk.files import read_json, write_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.config_sources import make_config, read_run_config
from ropewalk.lab.report import write_report
from ropewalk.lab.report.publish import publish
from ropewalk.lab.results import read_results, read_summary
from ropewalk.lab.running import compare as comparison
from ropewalk.lab.running.run_folder import prepare
from ropewalk.lab.tasks import open_task
from ropewalk.lab.tokens import Tokens

CONFIG = config_of("masked-lm", encodings="rotary", seeds=1)
CELL = Cell("rotary", 1)
READERS = {
    "config.json": lambda run: read_run_config(run).facts(),
    "corpus.json": lambda run: open_task(CONFIG, run).data_facts,
    "tokenizer.json": lambda run: Tokens.of_run(run).pieces(range(100)),
    "results.json": read_results,
    "examples.json": lambda run: read_summary(run / "examples.json"),
    "attention.json": lambda run: read_summary(run / "attention.json"),
    "sittings.json": lambda run: comparison._read_sessions(run / "sittings.json"),
    "x1.json": lambda run: open_task(CONFIG, run).evaluation("x1", CELL.folder(run)),
    "training.json": lambda run: comparison._read_cell(CELL, open_task(CONFIG, run)).record,
}
PLACES = 60  # at which a file is changed


def place_of(run, name):
    return (CELL.folder(run) if name in ("x1.json", "training.json") else run) / name


def compare(run):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "run_cells", run_cells_here)
        return comparison.compare(CONFIG, run, command=["ropewalk", "compare"])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checksums") / "run"
    compare(folder)
    return folder


def read_or_refused(name, run):
    try:
        return READERS[name](run)
    except ValueError as error:
        if str(place_of(run, name)) not in str(error):
            raise
        return None


@pytest.mark.parametrize("name", READERS)
def test_a_changed_character_is_said(run, name):
    path = place_of(run, name)
    whole, wanted = path.read_bytes(), READERS[name](run)
    refused = 0
    try:
        for place in range(0, len(whole), max(1, len(whole) // PLACES)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                found = read_or_refused(name, run)
            if found is None:
                refused += 1
                continue
            assert found == wanted or "without a checksum" in str(warned[0].message), place
    finally:
        path.write_bytes(whole)
    assert refused > PLACES / 2


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "results.json", "sittings.json"])
def test_the_way_out_leads_out(run, name, tmp_path):
    """Fails if the message has none, or if the same command does not write the file anew."""
    path = place_of(run, name)
    whole = path.read_bytes()
    key = {"config.json": b"rotary", "tokenizer.json": b'"type"', "results.json": b"rotary"}
    damaged = whole.replace(key.get(name, b"20"), b"19", 1)
    assert damaged != whole
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="delete it, and the same ropewalk compare or train"):
        READERS[name](run)
    path.unlink()
    compare(run)
    if name in ("config.json", "tokenizer.json"):
        assert path.read_bytes() == whole
    READERS[name](run)


@pytest.mark.parametrize("name", ["config.json", "results.json", "attention.json", "sittings.json"])
def test_a_file_without_a_checksum_is_read_with_a_warning(run, name):
    path = place_of(run, name)
    whole, wanted = path.read_bytes(), READERS[name](run)
    held = {key: value for key, value in read_json(path).items() if key != "checksum"}
    write_json(path, held)
    try:
        with pytest.warns(UserWarning, match="of an earlier version, without a checksum"):
            assert READERS[name](run) == wanted
    finally:
        path.write_bytes(whole)


def test_the_warning_is_given_once(run):
    """Fails if each file of a folder warns anew where warnings are shown as they come."""
    names = ("examples.json", "results.json", "attention.json")
    whole = {name: place_of(run, name).read_bytes() for name in names}
    try:
        for name in whole:
            held = read_json(run / name)
            write_json(run / name, {k: v for k, v in held.items() if k != "checksum"})
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("default")
            for name in (*whole, *whole):
                READERS[name](run)
        assert len(warned) == 1, [str(w.message) for w in warned]
    finally:
        for name, content in whole.items():
            (run / name).write_bytes(content)


def test_a_vocabulary_stays_a_file_of_its_library(run):
    assert Tokenizer.from_file(str(run / "tokenizer.json")).get_vocab_size() > 4


def test_published_results_have_no_checksum_and_are_read_quietly(run, tmp_path):
    publish(run, tmp_path)
    assert "checksum" not in read_json(tmp_path / "results.json")
    rows = read_results(tmp_path).encodings
    assert [row.attention.seed for row in rows] == [1]
    assert tuple(row.without("attention") for row in rows) == read_results(run).encodings


def test_a_runs_config_serves_as_a_file_of_fields_and_may_be_edited(run, tmp_path):
    """Fails if the checksum is taken for a field, or holds a copy to what it was."""
    held = read_json(run / "config.json")
    write_json(tmp_path / "mine.json", {**held, "width": 32})
    assert make_config(file=tmp_path / "mine.json") == CONFIG.model_copy(update={"width": 32})


def test_the_report_is_written_again(run):
    write_report(run)
    prepare(CONFIG, run)
