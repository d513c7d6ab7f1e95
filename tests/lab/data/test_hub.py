"""Data sets through `datasets`: these fail when they differ from the rows of the files, when a
large split is read into memory, or when a wrong name or row is not named in the message.
"""

import json
import sys

import pytest

from ropewalk.lab.data import hub, texts
from ropewalk.lab.data.corpus import load_corpus
from ropewalk.lab.data.textfiles import CorpusError
from ropewalk.lab.data.texts import load_texts


def test_a_name_has_a_config_and_a_commit():
    commit = "0123456789abcdef" * 2 + "01234567"
    assert hub.parse_name(f"hf:wmt/wmt14:de-en@{commit}") == hub.HubName(
        "wmt/wmt14", "de-en", commit
    )
    assert hub.parse_name("hf:opus") == hub.HubName("opus", None, None)
    with pytest.raises(CorpusError, match=r"must be a commit of 40 hexadecimal digits.*'main'"):
        hub.parse_name("hf:wmt/wmt14:de-en@main")
    for wrong in ("hf:", "hf::de", "hf:a:b:c", "hf:@x"):
        with pytest.raises(CorpusError, match="must have the form hf:NAME:CONFIG@REVISION"):
            hub.parse_name(wrong)


def test_without_the_library_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(CorpusError, match=r"needs datasets.*pip install .*\[datasets\]"):
        load_corpus("hf:wmt/wmt14:de-en@" + "0" * 40)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Skip without the library; otherwise its cache is a folder of the test."""
    pytest.importorskip("datasets", reason="datasets is not installed: pip install datasets")
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path


def write(folder, split, pairs, form):
    rows = [{"de": source, "en": target} for source, target in pairs]
    write_rows(folder, split, [{form: row} if form == "translation" else row for row in rows])


def write_rows(folder, split, rows):
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")


def numbered(count, word="Satz"):
    return [(f"{word} {i}", f"{word} number {i}") for i in range(count)]


@pytest.mark.filterwarnings("ignore")  # of other libraries
@pytest.mark.parametrize("form", ["translation", "columns"])
@pytest.mark.parametrize("large", [False, True])
def test_a_local_folder_is_read(home, monkeypatch, form, large):
    folder = home / "pairs"
    for split, count in (("train", 40), ("validation", 5), ("test", 6)):
        write(folder, split, numbered(count, split), form)
    monkeypatch.setattr(hub, "LARGE_PAIRS", 39 if large else 40)
    corpus = load_corpus(f"hf:{folder}", stream=True)
    if large:
        assert "train" not in corpus.splits
        corpus.stream.scan()
        train = [pair for block in corpus.stream.blocks() for pair in block]
    else:
        assert corpus.stream is None
        train = list(corpus.splits["train"])
    assert train == numbered(40, "train")
    assert list(corpus.splits["validation"]) == numbered(5, "validation")
    assert corpus.test_splits == ("test",)
    turned = load_corpus(f"hf:{folder}", source="en", target="de")
    assert turned.splits["test"][0] == ("test number 0", "test 0")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("large", [False, True])
def test_without_splits_sentences_are_held_out(home, monkeypatch, large):
    write(home / "pairs", "train", numbered(60), "columns")
    monkeypatch.setattr(hub, "LARGE_PAIRS", 59 if large else 60)
    corpus = load_corpus(f"hf:{home / 'pairs'}", stream=True)
    sizes = {name: len(pairs) for name, pairs in corpus.splits.items()}
    assert (sizes["validation"], sizes["test"]) == (3, 3)
    assert (corpus.stream is not None) == large


@pytest.mark.filterwarnings("ignore")
def test_wrong_rows_and_names_are_reported(home):
    folder = home / "pairs"
    write(folder, "train", [("eins", "one"), ("zwei", None)], "columns")
    with pytest.raises(CorpusError, match=r"\[train\], row 2 has no text for 'en'"):
        load_corpus(f"hf:{folder}")
    with pytest.raises(CorpusError, match=r"row 1 has no text for 'fr'; its fields are de, en"):
        load_corpus(f"hf:{folder}", target="fr")
    with pytest.raises(CorpusError, match="could not be loaded: BuilderConfig"):
        load_corpus(f"hf:{folder}:nothing")
    (home / "empty").mkdir()
    with pytest.raises(CorpusError, match="could not be loaded"):
        load_corpus(f"hf:{home / 'empty'}")


@pytest.mark.filterwarnings("ignore")
def test_a_name_without_a_commit_is_refused_with_the_newest_one(home, monkeypatch):
    monkeypatch.setattr(hub, "_newest", lambda name: "f" * 40)
    with pytest.raises(CorpusError, match=f"has no revision; use hf:a/b:c@{'f' * 40}"):
        load_corpus("hf:a/b:c")


# ---------------------------------------------------------------- running text


class Rows:
    """The part of a split of `datasets` that is read: its columns, in batches."""

    def __init__(self, **columns):
        self.columns, self.column_names = columns, list(columns)

    def select_columns(self, name):
        return Rows(**{name: self.columns[name]})

    def iter(self, batch_size):
        size = len(next(iter(self.columns.values())))
        for start in range(0, size, batch_size):
            yield {name: rows[start : start + batch_size] for name, rows in self.columns.items()}


def test_a_row_is_a_document_and_blank_ones_are_left_out():
    notes = []
    rows = Rows(text=[" one\r\ntwo ", "", "three"] * 600, title=[""] * 1800)
    documents = list(hub.documents_of(rows, "hf:x", "test", notes))
    assert documents == ["one\ntwo", "three"] * 600
    assert notes == ["test: 600 blank rows left out"]
    with pytest.raises(CorpusError, match=r"\[test\], row 2 has no text in its field 'text'"):
        list(hub.documents_of(Rows(text=["a", None]), "hf:x", "test", []))
    with pytest.raises(CorpusError, match=r"\[test\] has no field 'text'; its fields are de, en"):
        list(hub.documents_of(Rows(de=["a"], en=["b"]), "hf:x", "test", []))


def test_splits_of_text_are_taken_by_their_names_or_held_out(monkeypatch):
    splits = {
        "unsupervised": Rows(text=["no"]),
        "test": Rows(text=["c"]),
        "valid": Rows(text=["b"]),
        "train": Rows(text=["a", "aa"]),
    }
    monkeypatch.setattr(texts, "read_hub", lambda data: splits)
    read = load_texts("hf:x")
    assert read.splits == {"train": ("a", "aa"), "validation": ("b",), "test": ("c",)}
    assert read.test_splits == ("test",)
    del splits["valid"]
    splits["train"] = Rows(text=[f"text {i}" for i in range(40)])
    held = load_texts("hf:x").splits
    assert [len(held[split]) for split in ("train", "validation", "test")] == [36, 2, 2]
    assert {text for split in held.values() for text in split} == {f"text {i}" for i in range(40)}
    splits["train"] = Rows(text=[" "])
    with pytest.raises(CorpusError, match="hf:x has no text in its train split"):
        load_texts("hf:x")
    splits["train"] = Rows(text=["short"])
    with pytest.raises(CorpusError, match="hf:x, document 1 is too short to hold out"):
        load_texts("hf:x")
    del splits["train"]
    with pytest.raises(CorpusError, match="hf:x has no train split; it has unsupervised, test"):
        load_texts("hf:x")


@pytest.mark.filterwarnings("ignore")
def test_text_of_a_local_folder_is_read(home):
    for split, count in (("train", 30), ("validation", 2), ("test", 3)):
        rows = [{"text": f"{split} {i}\n\nmore\n"} for i in range(count)]
        write_rows(home / "texts", split, rows)
    read = load_texts(f"hf:{home / 'texts'}")
    assert read.splits["test"] == tuple(f"test {i}\n\nmore" for i in range(3))
    assert len(read.splits["train"]) == 30
