"""One input from outside is read or refused in 2 s of CPU and 500 MB, whatever it claims.

These fail if a file's own size, depth or claims decide what is allocated, or if what is no regular
file is waited for. Bombs of gzip are in data/test_corpus.py.
"""

import json
import os
import random
import shutil
import sys
import warnings

import pytest
import torch
from bounds import bounded, measured
from safetensors.torch import save_file
from synthetic_run import results
from tiny_tasks import translation_config

from ropewalk.files import MOST_JSON_BYTES, write_checked_json
from ropewalk.lab.cells import Cell, read_hypotheses
from ropewalk.lab.config_sources import make_config, read_run_config, read_setting
from ropewalk.lab.data.corpus import load_corpus
from ropewalk.lab.decoding.translator import Translator, read_sentences
from ropewalk.lab.models import build_model, load_model
from ropewalk.lab.results import read_results
from ropewalk.lab.tasks import open_task
from ropewalk.lab.tensors import read_checksum, read_tensors, weights_of, write_tensors
from ropewalk.lab.tokens import MOST_BYTES, Tokens
from ropewalk.lab.training.checkpoints import training_fields

if sys.platform != "linux":
    pytest.skip("needs limits and files of Linux", allow_module_level=True)

CONFIG = translation_config(encodings="rotary", seeds=1)
CELL = Cell("rotary", 1)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make what of a run folder is read to translate."""
    run = tmp_path_factory.mktemp("bounds") / "run"
    tokens = Tokens.train(["Der Hund sieht den Baum.", "The dog sees the tree."], 60)
    digest = tokens.save(run / "tokenizer.json")
    facts = {"config": training_fields(CONFIG), "encoding": CELL.encoding, "seed": CELL.seed}
    model = build_model(CONFIG, CELL.encoding, CELL.seed, tokens.size)
    write_tensors(CELL.folder(run) / "model.safetensors", weights_of(model), facts)
    write_checked_json(run / "config.json", CONFIG.facts())
    held = {"digest": "0", "vocabulary": tokens.size, "tokenizer": digest}
    write_checked_json(run / "corpus.json", held)
    write_checked_json(run / "results.json", results())
    write_checked_json(CELL.folder(run) / "test.json", {"decoding": {}})
    (CELL.folder(run) / "test.hypotheses.txt").write_text("a\n")
    return run


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "run")


CELLS = "cells/rotary/seed-1"
READERS = {
    "config.json": read_run_config,
    "corpus.json": lambda run: open_task(CONFIG, run).data_facts,
    "results.json": read_results,
    "tokenizer.json": Translator.load,
    f"{CELLS}/model.safetensors": lambda run: load_model(run / CELLS / "model.safetensors", CPU),
    f"{CELLS}/test.json": lambda run: open_task(CONFIG, run).evaluation("test", run / CELLS),
    f"{CELLS}/test.hypotheses.txt": lambda run: read_hypotheses(run / CELLS, "test"),
}
SMALL = [name for name in READERS if "/" not in name and name != "tokenizer.json"]


def test_what_is_whole_is_read_within_the_bound(run):
    for read in READERS.values():
        with bounded():
            read(run)


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "folder"])
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_regular_file_is_refused(run, name, kind):
    (run / name).unlink()
    if kind == "pipe":
        os.mkfifo(run / name)
    elif kind == "folder":
        (run / name).mkdir()
    else:
        (run / name).symlink_to(kind)
    with bounded(), pytest.raises(ValueError, match=name.rpartition("/")[2].replace(".", r"\.")):
        READERS[name](run)


def test_the_checksum_of_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "model.safetensors")
    with bounded():
        assert read_checksum(tmp_path / "model.safetensors") is None


def large(kind):
    """Give JSON as large as is read, of what takes the most time or memory; or larger."""
    size = MOST_JSON_BYTES - 100
    if kind == "one byte too many":
        return '{"x": 1}' + " " * MOST_JSON_BYTES
    if kind == "deep":
        return '{"x": ' + "[" * size
    if kind == "deep within the bound":
        return '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}"
    piece = {
        "objects": '{"a":0},',
        "lists": "[],",
        "objects within the bound": '{"a":0,"b":1.1 },',
        "numbers": "1.5,",
        "texts": '"\\u00fc",',
    }[kind]
    return '{"checksum": "0", "x": [' + piece * (size // len(piece)) + "0]}"


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("kind", ["one byte too many", "deep", "objects", "lists"])
def test_json_beyond_the_bound_is_refused(run, name, kind):
    (run / name).write_text(large(kind))
    with bounded(), pytest.raises(ValueError, match=name.replace(".", r"\.")) as caught:
        READERS[name](run)
    assert len(str(caught.value)) < 600


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["deep within the bound", "objects within the bound", "numbers", "texts"]
)
def test_json_just_within_the_bound(run, kind):
    (run / "results.json").write_text(large(kind))
    with bounded(), pytest.raises(ValueError, match=r"results\.json"):
        read_results(run)


class TestVocabularies:
    @pytest.mark.slow
    def test_as_many_tokens_as_are_read(self, run):
        path = run / "tokenizer.json"
        held = json.loads(path.read_text())
        vocabulary = held["model"]["vocab"]
        for i in range(1_500_000):
            vocabulary.setdefault(f"w{i:06}", len(vocabulary))
        path.write_text(json.dumps(held))
        assert MOST_BYTES * 0.8 < path.stat().st_size < MOST_BYTES
        with bounded(), pytest.raises(ValueError, match=r"tokenizer\.json is damaged"):
            Translator.load(run)
        with bounded():
            assert Tokens.load(path).size > 1_500_000

    def test_more(self, run):
        with (run / "tokenizer.json").open("ab") as file:
            file.truncate(2**32)
        with bounded(), pytest.raises(ValueError, match="bytes, but at most"):
            Translator.load(run)


class TestModelFiles:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "w.safetensors"

    def refused(self, path, said):
        with bounded(), pytest.raises(ValueError, match=said) as caught:
            load_model(path, CPU)
        assert len(str(caught.value)) < 1_000

    @pytest.mark.parametrize(
        ("field", "value"),
        [("width", 2**17), ("feed_forward", 2**17), ("encoder_layers", 1_000), ("heads", 2**16)],
    )
    def test_sizes_that_it_claims(self, run, field, value):
        path = CELL.folder(run) / "model.safetensors"
        tensors, facts = read_tensors(path)
        facts["config"][field] = value
        write_tensors(path, tensors, facts)
        self.refused(path, field)

    def test_a_header_as_long_as_it_claims(self, path):
        with path.open("wb") as file:
            file.write((2**63).to_bytes(8, "little"))
            file.truncate(2**40)  # of holes: it takes no disk
        self.refused(path, "its header claims")

    @pytest.mark.slow
    def test_many_tensors(self, path):
        empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
        header = json.dumps({f"t{i}": empty for i in range(200_000)}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        self.refused(path, r"names more than|header claims")

    @pytest.mark.parametrize("piece", ["[],", '{"a":0},'])
    def test_facts(self, path, piece):
        for size in (15 * 10**6, 60 * 10**6):
            text = '{"a": [' + piece * (size // len(piece)) + "0]}"
            save_file({"a": torch.ones(1)}, path, {"facts": text})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.refused(path, r"w\.safetensors")


@pytest.mark.parametrize("ending", ["jsonl", "tsv", "de"])
def test_a_line_of_50_megabytes(tmp_path, ending):
    content = b"x " * 25_000_000
    for split in ("train", "val"):
        (tmp_path / f"{split}.{ending}").write_bytes(content)
        if ending == "de":
            (tmp_path / f"{split}.en").write_bytes(content)
    with bounded(), pytest.raises(ValueError, match="is longer than"):
        load_corpus(str(tmp_path))


def test_a_line_to_translate(run, tmp_path):
    with bounded():
        translator = Translator.load(run)
    (tmp_path / "long.txt").write_bytes(b"x" * 50_000_000)
    with bounded(), pytest.raises(ValueError, match="line 1 is longer than"):
        read_sentences(tmp_path / "long.txt")
    with bounded(), pytest.raises(ValueError, match=r"line 1 has .* characters"):
        translator([" ".join(["Hund"] * 100_000)])
    with bounded(), pytest.raises(ValueError, match=r"line 1 has .* tokens"):
        translator([" ".join("?" * 9_000)])


@pytest.mark.slow
def test_a_corpus_is_linear_and_at_most_four_times_its_size(tmp_path):
    draw = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz      "
    for side in ("de", "en"):
        rows = ("".join(draw.choices(letters, k=100)) + f" {i}\n" for i in range(60_000))
        (tmp_path / f"all.{side}").write_text("".join(rows))
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    with measured() as use:
        load_corpus(f"{tmp_path / 'all.de'},{tmp_path / 'all.en'}")
    assert use.memory < 4 * size + 2**20
    assert use.fault() is None


YAML = {
    "aliases": "a: &a [x,x]\nb: &b [*a,*a]\n" + "c: [*b,*b]\n" * 100,
    "lists": "encodings: [" + "[]," * 20_000 + "]",
    "keys": "? [" * 3_000,
    "questions": "seeds: [" + "?," * 32_000 + "]",
    "numbers": "seeds: [" + "1," * 32_000 + "]",
    "deep": "[" * 60_000,
    "anchors": "".join(f"k{i}: &a{i} x\n" for i in range(4_000)),
}
SLOW = ("lists", "questions", "numbers")  # which take PyYAML seconds


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in SLOW else ()) for kind in YAML]
)
def test_yaml(tmp_path, kind):
    (tmp_path / "c.yaml").write_text(YAML[kind])
    with bounded(), pytest.raises(ValueError, match=r"\w+") as caught:
        make_config(file=tmp_path / "c.yaml")
    assert len(str(caught.value)) < 20_000
    with bounded():
        read_setting(f"seeds={YAML[kind] * 2}")
