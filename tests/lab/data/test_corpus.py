"""Reading corpora: the pairs read are the pairs written, and a user's mistake is named.

These fail when a line is split, lost or misaligned, when a sentence is in two splits of one pair
of files, when a broken file is read without an error, and when a message leaves out the file, the
line or the way out.
"""

import csv
import gzip
import hashlib
import io
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from bounds import bounded
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.lab.config_sources import make_config
from ropewalk.lab.data import corpus as corpus_module
from ropewalk.lab.data.corpus import Corpus, CorpusError, load_corpus, overlap
from ropewalk.lab.data.phrases import LONGEST, SHORTEST, SIZES, read_phrases
from ropewalk.lab.data.texts import load_texts

# Characters that end lines for str.splitlines, umlauts, and letters of four bytes.
texts = st.text(st.sampled_from("aäß𝄞. \u2028\u2029\x0b\x0c\x1c\x85\r"), min_size=1).map(
    lambda text: f"x{text}x"
)
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=8)


def write(path: Path, lines, end: str = "\n") -> Path:
    data = "".join(line + end for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_split(folder: Path, name: str, rows, ending: str = "") -> None:
    write(folder / f"{name}.de{ending}", [de for de, _ in rows])
    write(folder / f"{name}.en{ending}", [en for _, en in rows])


def numbered(count: int, start: int = 0) -> list[tuple[str, str]]:
    return [(f"Satz {i}", f"sentence {i}") for i in range(start, start + count)]


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    write_split(folder, "train", numbered(6))
    write_split(folder, "val", numbered(2, 10))
    write_split(folder, "test", numbered(2, 20))
    return folder


@settings(max_examples=20)
@given(rows=pairs, compressed=st.booleans(), end=st.sampled_from(["\n", "\r\n"]))
def test_a_folder_reads_back_what_was_written(tmp_path_factory, rows, compressed, end):
    folder = tmp_path_factory.mktemp("corpus")
    ending = ".gz" if compressed else ""
    for name in ("train", "val"):
        write(folder / f"{name}.de{ending}", [de for de, _ in rows], end)
        write(folder / f"{name}.en{ending}", [en for _, en in rows], end)
    corpus = load_corpus(str(folder))
    assert corpus.splits["train"] == tuple(rows)
    assert corpus.splits["validation"] == tuple(rows)


@settings(max_examples=20)
@given(rows=pairs)
def test_jsonl_reads_back_what_was_written(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("corpus")
    lines = [json.dumps({"de": de, "en": en, "more": 1}) for de, en in rows]
    write(folder / "train.jsonl", lines)
    write(folder / "dev.jsonl.gz", lines)
    corpus = load_corpus(str(folder), source="en", target="de")
    assert corpus.splits["train"] == tuple((en, de) for de, en in rows)
    assert corpus.splits["validation"] == corpus.splits["train"]


def test_a_folder_with_every_kind_of_split(tmp_path):
    endings = {"train": "", "valid": ".gz", "long": "", "test_b": ".gz", "test_a": ""}
    for name, ending in endings.items():
        write_split(tmp_path, name, [(f"{name} de", f"{name} en")], ending)
    (tmp_path / "README.md").write_text("not a side")
    corpus = load_corpus(str(tmp_path), source="en", target="de")
    assert list(corpus.splits) == ["train", "validation", "test_a", "test_b", "long"]
    assert corpus.test_splits == ("test_a", "test_b", "long")
    assert corpus.splits["test_b"] == (("test_b en", "test_b de"),)
    assert (corpus.name, corpus.source, corpus.target) == (tmp_path.name, "en", "de")


def test_a_byte_order_mark_and_a_missing_last_line_end_are_no_text(folder):
    (folder / "train.de").write_bytes("\ufeffeins\nzwei".encode())
    (folder / "train.en").write_bytes(gzip.compress(b"one\ntwo"))  # needs no ending .gz
    assert load_corpus(str(folder)).splits["train"] == (("eins", "one"), ("zwei", "two"))


def test_lines_empty_on_both_sides_are_left_out_and_told(folder):
    write_split(folder, "train", [("eins", "one"), ("", " "), ("zwei", "two"), ("", "")])
    corpus = load_corpus(str(folder))
    assert corpus.splits["train"] == (("eins", "one"), ("zwei", "two"))
    assert corpus.notes == ("train: 2 lines empty on both sides left out",)


def test_two_files_are_split_by_content_alone(tmp_path):
    rows = numbered(400)
    forwards = _two_files(tmp_path, rows)
    backwards = _two_files(tmp_path, rows[::-1])
    for split in ("train", "validation", "test"):
        assert sorted(forwards.splits[split]) == sorted(backwards.splits[split])
    assert [len(forwards.splits[name]) for name in ("train", "validation", "test")] == [360, 20, 20]
    assert sorted(pair for part in forwards.splits.values() for pair in part) == sorted(rows)


def test_no_source_sentence_is_in_two_splits_of_two_files(tmp_path):
    rows = [(f"Satz {i % 50}", f"sentence {i}") for i in range(200)]
    corpus = _two_files(tmp_path, rows)
    held_out = corpus.splits["validation"] + corpus.splits["test"]
    assert len(held_out) == len({source for source, _ in held_out}) == 4
    assert all(row["source"] == 0 for row in overlap(corpus).values())
    assert corpus.notes == ("12 further translations of held-out source sentences left out",)


def test_held_out_splits_of_large_files_stop_growing(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_module, "HELD_OUT_MOST", 7)
    splits = _two_files(tmp_path, numbered(1_000)).splits
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [986, 7, 7]


def _two_files(folder: Path, rows) -> Corpus:
    source = write(folder / "all.txt", [de for de, _ in rows])
    target = write(folder / "all.english.gz", [en for _, en in rows])
    return load_corpus(f"{source},{target}")


def test_overlap_counts_sentences_and_pairs():
    corpus = Corpus(
        "tiny",
        "de",
        "en",
        {
            "train": (("a", "A"), ("b", "B")),
            "validation": (("c", "C"),),
            "test": (("a", "A"), ("a", "B"), ("c", "A"), ("b", "D")),
        },
    )
    assert overlap(corpus) == {
        "validation": {"source": 0, "target": 0, "pairs": 0},
        "test": {"source": 3, "target": 3, "pairs": 1},
    }


def test_the_built_in_pairs_are_the_same_for_ever():
    lines = [f"{name}\t{a}\t{b}\n" for name, pairs in read_phrases().items() for a, b in pairs]
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert digest == "70995e66f2d91b0fb0a357db33a494c38d01fcaf3cb4baade5967241ef9ccd16"
    assert SIZES["train"] == make_config().examples


def test_built_in_sentences_occur_once_and_long_ones_are_longer():
    corpus = load_corpus("phrases")
    for side in (0, 1):
        sentences = [pair[side] for pairs in corpus.splits.values() for pair in pairs]
        assert len(set(sentences)) == len(sentences)
        for name, pairs in corpus.splits.items():
            lengths = {len(pair[side].split()) for pair in pairs}
            usual = min(lengths) >= SHORTEST and max(lengths) <= LONGEST
            assert usual == (name != "long")
            assert usual or LONGEST < min(lengths) <= max(lengths) <= 2 * LONGEST


def test_training_has_each_built_in_word_often():
    splits = load_corpus("phrases").splits
    for side in (0, 1):
        words = {
            name: Counter(
                word for pair in pairs for word in re.sub("[,.?]", "", pair[side]).lower().split()
            )
            for name, pairs in splits.items()
        }
        known = words.pop("train")
        assert all(known[word] >= 20 for counts in words.values() for word in counts)


def test_phrases_turn_round_and_fewer_examples_are_the_first_ones():
    corpus, turned = load_corpus("phrases"), load_corpus("phrases", source="en", target="de")
    assert turned.splits["test"] == tuple(pair[::-1] for pair in corpus.splits["test"])
    assert turned.test_splits == ("test", "long")
    few = load_corpus("phrases", examples=5)
    assert few.splits == {**corpus.splits, "train": corpus.splits["train"][:5]}
    with pytest.raises(CorpusError, match="must be 'de' and 'en' for phrases, got 'de' and 'fr'"):
        load_corpus("phrases", target="fr")
    with pytest.raises(CorpusError, match=r"at most 14000, .* got 14001; .*write_phrases\.py"):
        load_corpus("phrases", examples=14_001)


def test_the_number_of_pairs_is_a_field_of_built_in_pairs_only():
    assert "examples" not in make_config().facts()
    assert make_config(settings={"examples": 300}).facts()["examples"] == 300
    with pytest.raises(ValueError, match=r"examples counts generated pairs, got 5 with data=x"):
        make_config(settings={"examples": 5, "data": "x"})


# ---------------------------------------------------------------- mistakes and their messages


def message(data, **languages) -> str:
    with pytest.raises(CorpusError) as caught:
        load_corpus(str(data), **languages)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_an_unknown_name_is_told_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message("phrase").startswith(
        "there is no corpus 'phrase' (nearest: phrases); use 'phrases', "
    )
    assert f"(and no folder {tmp_path / 'none'})" in message(tmp_path / "none" / "here")
    assert message(tmp_path).endswith("the folder contains nothing")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("HERE/trian.de,HERE/train.en", "there is no file HERE/trian.de (nearest: HERE/train.de)"),
        ("HERE,HERE/train.en", "HERE cannot be read: Is a directory"),
        ("HERE/val.de,HERE/val.en", "HERE/val.de has 2 different sentences: "),
        ("HERE/train.de", "HERE/train.de is one file, but a corpus needs both sides"),
        ("a,b,c", "data must be two files, SOURCE_FILE,TARGET_FILE, got 'a,b,c'"),
        ("a,", "data must be two files, SOURCE_FILE,TARGET_FILE, got 'a,'"),
        ("a\0b", "data must name files, got 'a\\x00b' with a NUL character"),
    ],
)
def test_what_names_no_corpus(folder, data, expected):
    text = message(data.replace("HERE", str(folder)))
    assert text.startswith(expected.replace("HERE", str(folder)))


def test_source_and_target_must_differ(folder):
    text = message(folder, source="de", target="de")
    assert text == "source and target must be two languages, got 'de' for both"
    assert message(folder, source="cs").startswith(
        f"{folder / 'test.en'} has no other side: expected test.cs"
    )


#: Content of files that are added or, if None, removed; and the whole message or its beginning.
FOLDERS = [
    (
        {"val.de": None, "val.en": None},
        "HERE has no validation split: expected validation|valid|val|dev.de and .en (plain or "
        ".gz), or .jsonl, .csv or .tsv; the folder contains test.de, test.en, train.de, train.en",
    ),
    ({"train.de": None, "train.en": None}, "HERE has no train split: expected train.de and .en"),
    (
        {"test.en": None},
        "HERE/test.de has no other side: expected test.en (plain or .gz) next to it",
    ),
    (
        {"train.de.gz": b""},
        "HERE: more than one file could be the train split: train.de, train.de.gz",
    ),
    ({"train.jsonl": b"{}"}, "HERE: more than one file could be the train split"),
    ({"dev.de": b"a", "dev.en": b"b"}, "HERE has more than one validation split: val, dev"),
    (
        {"train.de": "".join(f"Satz {i}\n" for i in range(1, 9)).encode()},
        "the two sides differ in length: HERE/train.de has 8 lines and HERE/train.en has 6; line 7 "
        "of HERE/train.de is the first without a counterpart: 'Satz 7'",
    ),
    ({"test.de": b"full\n\t \n"}, "HERE/test.de, line 2 is empty, but its counterpart in HERE/t"),
    ({"test.en": b"full\n\t \n"}, "HERE/test.en, line 2 is empty, but its counterpart in HERE/t"),
    (
        {"train.de": "gr\xfc\xdfe".encode() + b"\nM\xfcnchen\n"},
        "HERE/train.de, line 2 is not UTF-8: byte 0xfc at offset 9",
    ),
    (
        {"test.de": b"", "test.en": b""},
        "HERE/test.de is empty: the test split has no sentence pairs",
    ),
]


@pytest.mark.parametrize(("files", "expected"), FOLDERS)
def test_a_wrong_folder_is_named_with_its_mistake(folder, files, expected):
    for name, content in files.items():
        (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    assert message(folder).startswith(expected.replace("HERE", str(folder)))


PACKED = gzip.compress(b"".join(b"%d\n" % i for i in range(2_000)))
HALF = len(PACKED) // 2
DAMAGED = PACKED[:HALF] + bytes([PACKED[HALF] ^ 0xFF]) + PACKED[HALF + 1 :]


@pytest.mark.parametrize("content", [PACKED[:-9], b"plain text\n", DAMAGED])
def test_a_broken_gzip_file_is_named(folder, content):
    (folder / "train.de.gz").write_bytes(content)
    (folder / "train.de").unlink()
    assert message(folder).startswith(f"{folder / 'train.de.gz'} is not a complete gzip file: ")


GOOD = '{"de": "ja", "en": "yes"}'
ROWS = [("Ein Satz.", "A sentence."), ('Er sagt "ja", oder?', 'He says "yes", right?')]


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "tsv.gz"])
@pytest.mark.parametrize("named", [False, True])
def test_tables_read_back_what_was_written(tmp_path, ending, named):
    """Fails if CSV or TSV is not read, a quotation mark is lost, or columns are confused."""
    rows = [(target, "x", source) for source, target in ROWS] if named else ROWS
    rows = ([("en", "id", "de")] if named else []) + rows
    written = io.StringIO()
    if ending.startswith("csv"):
        csv.writer(written).writerows(rows)
    else:
        written.write("".join("\t".join(row) + "\n" for row in rows))
    for split in ("train", "dev"):
        write(tmp_path / f"{split}.{ending}", written.getvalue().splitlines())
    corpus = load_corpus(str(tmp_path))
    assert corpus.splits["train"] == corpus.splits["validation"] == tuple(ROWS)


def test_one_table_is_split_by_content(tmp_path):
    write(tmp_path / "all.tsv", ["\t".join(row) for row in numbered(40)])
    corpus = load_corpus(str(tmp_path / "all.tsv"))
    assert [len(corpus.splits[name]) for name in ("train", "validation", "test")] == [36, 2, 2]


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("train.de", ["good", "b\0d"], "line 2 has a NUL character"),
        ("train.de", ["x" * 100_001], "line 1 is longer than 100000 bytes"),
        ("train.jsonl", ['{"de": "\\ud800", "en": "a"}'], "line 1 has a surrogate"),
        ("train.jsonl", ['{"de": "a\\u0000", "en": "a"}'], "line 1 has a NUL character"),
        ("train.jsonl", ["1" * 5000], "line 1 is not JSON: it has an integer of too many"),
        ("train.jsonl", ["[" * 90_000], "line 1 is not JSON: its lists and objects are nested too"),
        ("train.jsonl", [json.dumps({"k" * 5000: 1})], "has no text in field 'de'; it has 'kkk"),
        ("train.jsonl", [GOOD, '{"de": "ja"'], "the first error is at character 12"),
        ("train.jsonl", [GOOD, '{"de": "ja", "fr": 1}'], "has no text in field 'en'; it has 'de'"),
        ("train.jsonl", [GOOD, '{"de": "ja", "en": 1}'], "line 2 has no text in field 'en'"),
        ("train.jsonl", [GOOD, "[]"], "line 2 has no text in field 'de'; it has list"),
        ("train.jsonl", [GOOD, '{"de": "", "en": "a"}'], "line 2 is empty, but its counterpart in"),
        ("train.tsv", ["a\tb\tc"], "line 1 has 3 columns: expected two"),
        ("train.csv", ["a,b", "c"], "line 2 has 1 columns: expected two"),
        ("train.csv", ["de,id,en", "a,1"], "line 2 has 2 columns"),
        ("train.csv", ["a,b", '"c'], "cannot be read"),
    ],
)
def test_wrong_and_hostile_lines_are_named(tmp_path, name, lines, said):
    """Fails if such a line is read, or if its message is not ours or contains the full line."""
    write(tmp_path / name, lines)
    if name == "train.de":
        write(tmp_path / "train.en", lines)
    write_split(tmp_path, "val", numbered(2))
    text = message(tmp_path)
    assert text.startswith(str(tmp_path / name))
    assert said in text
    assert len(text) < 600


def test_little_gzip_that_unpacks_to_much_is_refused_early(folder):
    """Fails if 3 MB of one letter are unpacked completely; the smallest bound allows 1 MB."""
    packed = gzip.compress(b"x\n" * 1_500_000, 6)
    for language in ("de", "en"):
        (folder / f"train.{language}").write_bytes(packed)
    assert "unpacks to more than" in message(folder)


@pytest.fixture(scope="module")
def bomb():
    return gzip.compress(b"\n" * 10**8, 6)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of Linux")
@pytest.mark.parametrize("name", ["all.csv", "all.tsv", "all.jsonl", "all.txt"])
def test_a_bomb_of_empty_lines_is_refused_within_the_bound(tmp_path, name, bomb):
    """Fails if a tenth of a megabyte takes seconds, or fills hundreds of megabytes with rows."""
    for split in ("train", "val"):
        path = tmp_path / name.replace("all", split)
        path.write_bytes(bomb)
    with bounded(), pytest.raises(CorpusError, match="unpacks to more than"):
        load_texts(str(tmp_path)) if name == "all.txt" else load_corpus(str(tmp_path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(folder):
    (folder / "train.de").unlink()
    os.mkfifo(folder / "train.de")
    assert "not a regular file" in message(f"{folder / 'train.de'},{folder / 'train.en'}")


def test_the_endings_of_two_files_say_their_languages(tmp_path):
    """Fails if two files are always called German and English."""
    for name in ("mini.fr", "mini.en", "a.txt", "b.txt"):
        (tmp_path / name).write_text("a\nb\nc\nd\n", encoding="utf-8")
    named = load_corpus(f"{tmp_path / 'mini.fr'},{tmp_path / 'mini.en'}")
    assert (named.source, named.target) == ("fr", "en")
    unnamed = load_corpus(f"{tmp_path / 'a.txt'},{tmp_path / 'b.txt'}", source="cs", target="en")
    assert (unnamed.source, unnamed.target) == ("cs", "en")
