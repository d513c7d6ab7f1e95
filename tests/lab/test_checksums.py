"""Every JSON file that a run reads back: a changed character is an error that names it.

These fail if what was damaged or edited is taken for what was written, if the way out is not said
or does not lead out, or if a published file, which has no checksum, is no longer read.
"""

import pytest
from cells_here import compare_here
from publish import publish
from tiny_tasks import config_of
from tokenizers import Tokenizer

from ropewalk.files import read_checked_json, read_json, write_checked_json, write_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.config_sources import make_config, read_run_config
from ropewalk.lab.results import read_results, read_summary
from ropewalk.lab.running.compare import read_sessions
from ropewalk.lab.tasks import open_task
from ropewalk.lab.tokens import Tokens
from ropewalk.lab.training.trainer import ended_training

CONFIG = config_of("masked-lm", encodings="rotary", seeds=1)
CELL = Cell("rotary", 1)
READERS = {
    "config.json": lambda run: read_run_config(run).facts(),
    "corpus.json": lambda run: open_task(CONFIG, run).data_facts,
    "tokenizer.json": lambda run: Tokens.of_run(run).pieces(range(100)),
    "results.json": read_results,
    "examples.json": lambda run: read_summary(run / "examples.json"),
    "attention.json": lambda run: read_summary(run / "attention.json"),
    "sittings.json": lambda run: read_sessions(run / "sittings.json"),
    "x1.json": lambda run: open_task(CONFIG, run).evaluation("x1", CELL.folder(run)),
    "training.json": lambda run: ended_training(CELL.folder(run)),
}
PLACES = 40  # at which a file is changed


def place_of(run, name):
    return (CELL.folder(run) if name in ("x1.json", "training.json") else run) / name


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checksums") / "run"
    compare_here(CONFIG, folder)
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
            found = read_or_refused(name, run)
            refused += found is None
            assert found in (None, wanted), place
    finally:
        path.write_bytes(whole)
    assert refused > PLACES / 2


def test_the_way_out_leads_out(run):
    """Fails if the message has none, or if the same command does not write the file anew."""
    edited = {"config.json": b"rotary", "tokenizer.json": b'"type"', "results.json": b"rotary"}
    edited["sittings.json"] = b"20"
    whole = {name: place_of(run, name).read_bytes() for name in edited}
    for name, key in edited.items():
        path = place_of(run, name)
        path.write_bytes(whole[name].replace(key, b"19", 1))
        assert path.read_bytes() != whole[name]
        with pytest.raises(ValueError, match="delete it, and the same ropewalk compare or train"):
            READERS[name](run)
        path.unlink()
    compare_here(CONFIG, run)
    for name in edited:
        READERS[name](run)
    for name in ("config.json", "tokenizer.json"):
        assert place_of(run, name).read_bytes() == whole[name]


@pytest.mark.parametrize("name", ["config.json", "results.json", "attention.json", "sittings.json"])
def test_a_file_without_a_checksum_is_refused(run, name):
    path = place_of(run, name)
    whole = path.read_bytes()
    write_json(path, {key: value for key, value in read_json(path).items() if key != "checksum"})
    with pytest.raises(ValueError, match="does not match its checksum"):
        READERS[name](run)
    path.write_bytes(whole)


def test_a_checksum_under_a_changed_name_counts_where_none_is_needed(tmp_path):
    """Fails if one flipped bit in the key lets damaged facts pass."""
    path, key = tmp_path / "results.json", b'"checksum"'
    write_checked_json(path, {"encodings": [1, 2], "note": "x" * 64})
    whole = path.read_bytes()
    for bit in range(8 * len(key)):
        changed = (int.from_bytes(key, "big") ^ 1 << bit).to_bytes(len(key), "big")
        path.write_bytes(whole.replace(key, changed))
        with pytest.raises(ValueError, match=r"results\.json"):
            read_checked_json(path, unchecked=True)


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
