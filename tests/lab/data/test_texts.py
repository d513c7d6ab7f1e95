"""Reading running text: each text is read once and unchanged, and a user's mistake is named.

These fail when a character is lost, a passage is in two splits, a file is silently skipped, and
when a message leaves out the file, the rule or the way out.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.lab.data import texts as texts_module
from ropewalk.lab.data.textfiles import CorpusError
from ropewalk.lab.data.texts import Texts, load_texts

LINES = [f"line {i} of the text" for i in range(400)]
# Characters that end lines for str.splitlines, and letters of two and four bytes.
passages = st.text(st.sampled_from("aä𝄞. \n\u2028\u2029\x0b\x85\t"), min_size=200).map(
    lambda text: f"x{text}\n" + "y z\n" * 60
)


def write(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@settings(max_examples=30)
@given(text=passages, compressed=st.booleans(), end=st.sampled_from(["\n", "\r\n"]))
def test_one_file_is_split_in_order_and_nothing_is_lost(tmp_path_factory, text, compressed, end):
    folder = tmp_path_factory.mktemp("texts")
    path = write(folder / f"book.txt{'.gz' * compressed}", text.replace("\n", end))
    read = load_texts(str(path))
    assert list(read.splits) == ["train", "validation", "test"]
    joined = "".join(split[0] for split in read.splits.values())
    assert "".join(joined.split()) == "".join(text.split())
    assert len(read.splits["train"][0]) > 0.8 * len(text.strip())


@pytest.mark.parametrize(("lines", "end"), [(LINES, "\n"), ([f"w{i}" for i in range(400)], " ")])
def test_one_file_is_cut_at_line_ends_or_spaces_near_its_last_tenth(tmp_path, lines, end):
    path = write(tmp_path / "book.txt", end.join(lines))
    splits = {name: split[0].split(end) for name, split in load_texts(str(path)).splits.items()}
    assert [line for part in splits.values() for line in part] == lines
    assert len(splits["validation"]) == pytest.approx(20, abs=2)
    assert len(splits["test"]) == pytest.approx(20, abs=2)


def test_each_of_a_few_files_gives_its_end(tmp_path):
    names = [f"{i}.txt" for i in range(3)]
    paths = [
        write(tmp_path / name, "\n".join(f"{name} {line}" for line in LINES)) for name in names
    ]
    read = load_texts(",".join(map(str, paths)))
    assert read.name == "0.txt,1.txt,2.txt"
    for split in read.splits.values():
        assert [document.split()[0] for document in split] == names
    assert load_texts(str(tmp_path)).splits == read.splits


def test_of_many_files_whole_ones_are_held_out(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, order in ((one, range(60)), (other, range(59, -1, -1))):
        folder.mkdir()
        for name, i in enumerate(order):
            write(folder / f"{name:02}.txt", f"story {i}")
        write(folder / "again.txt", "story 7")
    read = load_texts(str(one))
    assert read.splits == load_texts(str(other)).splits  # whatever the files are called
    documents = [document for split in read.splits.values() for document in split]
    assert sorted(documents) == sorted(f"story {i}" for i in range(60))
    assert [len(read.splits[split]) for split in ("train", "validation", "test")] == [54, 3, 3]


def test_a_folder_with_its_own_splits(tmp_path):
    for name in ("train.txt", "valid.txt.gz", "test.txt", "test_far.txt", "README.txt", "notes.md"):
        write(tmp_path / name, f"\ufeff  this is {name}\n\n")
    read = load_texts(str(tmp_path))
    assert dict(read.splits) == {
        "train": ("this is train.txt",),
        "validation": ("this is valid.txt.gz",),
        "test": ("this is test.txt",),
        "test_far": ("this is test_far.txt",),
    }
    assert read.test_splits == ("test", "test_far")
    assert read.notes == ("no split by their names, left out: README.txt",)


def test_the_built_in_texts(monkeypatch):
    monkeypatch.setattr(texts_module, "TALES", {"train": 3, "validation": 1, "test": 2})
    read = load_texts("tales")
    assert {name: len(split) for name, split in read.splits.items()} == texts_module.TALES
    assert all(len(document.split()) > 1_000 for document in read.splits["test"])


# Mistakes


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("tale", r"there are no texts 'tale' \(nearest: tales\); use 'tales', a fo"),
        ("book.txt,bok.txt", r"no file bok\.txt \(nearest: book\.txt\)"),
        ("a.txt,", "data must be files as FILE,FILE, got"),
        (",", "data must be files as FILE,FILE, got"),
        ("a.txt,,b.txt", "data must be files as FILE,FILE, got"),
    ],
)
def test_what_names_no_texts(tmp_path, monkeypatch, data, expected):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "book.txt", "text " * 100)
    with pytest.raises(CorpusError, match=expected):
        load_texts(data)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("book.txt", b"", r"book\.txt is empty"),
        ("book.txt", b" \n\n\t ", r"book\.txt is empty"),
        ("book.txt", b"two words", r"book\.txt is too short .*it has 9 characters; give a lo"),
        (
            "book.txt",
            "ein Satz\nzwei Sätze\n".encode("latin-1"),
            r"book\.txt, line 2 is not UTF-8: byte 0xe4 at offset 15",
        ),
        (
            "book.txt.gz",
            gzip.compress(b"text", mtime=0)[:-4],
            r"book\.txt\.gz is not a complete gzip file",
        ),
    ],
)
def test_a_wrong_file_is_named(tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=expected):
        load_texts(str(tmp_path / name))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["train.txt"], "must have train and one of validation, .*it has train.txt"),
        (["val.txt", "test.txt"], "must have train and one of validation, .*it has test.txt"),
        (["train.txt", "val.txt", "dev.txt"], "must have train and one of validation, .*it has"),
        (["test/a.txt"], "must have train and one of .*it has test"),
        ([], r"has no \.txt or \.txt\.gz file; it contains nothing"),
        (["corpus.de"], r"it contains corpus\.de"),
        (["train/a.txt", "train.txt"], "has train twice"),
        (["book.txt", "book.txt.gz"], r"has book twice: book\.txt, book\.txt\.gz"),
        ([f"{i}.txt" for i in range(25)], "25 documents have 1 different texts"),
    ],
)
def test_a_folder_that_cannot_be_split(tmp_path, names, expected):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, "text")
    with pytest.raises(CorpusError, match=expected):
        load_texts(str(tmp_path))


def test_no_split_is_empty():
    with pytest.raises(CorpusError, match="texts 'mine': their train split is empty"):
        Texts("mine", {"train": (), "validation": ("text",)})


def test_folders_named_as_splits_hold_a_document_a_file(tmp_path):
    for place in ("train/b.txt", "train/a.txt.gz", "dev/c.txt", "test/d.txt", "test/notes.md"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        write(tmp_path / place, f"text of {place}\n")
    read = load_texts(str(tmp_path))
    assert read.splits == {
        "train": ("text of train/a.txt.gz", "text of train/b.txt"),
        "validation": ("text of dev/c.txt",),
        "test": ("text of test/d.txt",),
    }
