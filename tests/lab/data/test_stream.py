"""Large corpora: these fail when a stream gives other ids, batches or losses than the corpus in
memory, when a killed session leaves something half-read or is not gone on with, and when a wrong
corpus is not reported in one line that names it.
"""

import errno
import random

import pytest
from tiny_tasks import translation_config

from ropewalk import files
from ropewalk.files import read_checked_json
from ropewalk.lab.data import corpus, store, stream
from ropewalk.lab.data.textfiles import CorpusError
from ropewalk.lab.running.run_folder import prepare
from ropewalk.lab.training.trainer import Trainer

WORDS = ("der", "Hund", "sieht", "eine", "Katze", "und", "das", "Haus", "über", "läuft")
FIELDS = {
    "vocabulary": 60,
    "max_tokens": 7,
    "batch_tokens": 200,
    "epochs": 0.6,
    "encodings": "rotary",
    "seeds": 1,
}


def sentences(count, seed):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 9))) for _ in range(count)]


@pytest.fixture
def folder(tmp_path):
    """Return a corpus of 400 training pairs."""
    held = tmp_path / "corpus"
    held.mkdir()
    for name, count in (("train", 400), ("val", 20), ("test", 30)):
        for seed, side in enumerate(("de", "en")):
            text = "\n".join(sentences(count, f"{name} {seed}")) + "\n"
            (held / f"{name}.{side}").write_text(text, encoding="utf-8")
    return held


@pytest.fixture
def small_blocks(monkeypatch):
    """Every corpus is large, and a block has 70 pairs."""
    monkeypatch.setattr(stream, "LARGE_BYTES", 1)
    monkeypatch.setattr(stream, "BLOCK_PAIRS", 70)


def config_of(data, **fields):
    return translation_config(**{**FIELDS, "data": str(data), **fields})


def content(run):
    return {
        path.name: path.read_bytes()
        for path in sorted((run / "pairs").iterdir())
        if path.suffix == ".safetensors" or path.name == "store.json"
    }


def test_a_stream_gives_what_memory_gives(folder, tmp_path, monkeypatch):
    held = prepare(config_of(folder), tmp_path / "memory")
    monkeypatch.setattr(stream, "LARGE_BYTES", 1)
    monkeypatch.setattr(stream, "BLOCK_PAIRS", 70)
    streamed = prepare(config_of(folder), tmp_path / "stream")
    assert len(list((tmp_path / "stream" / "pairs").glob("*.safetensors"))) == 6
    assert list(streamed.data) == ["train", "validation", "test"]
    for split, mine in streamed.data.items():
        theirs = held.data[split]
        assert list(mine.source) == theirs.source
        assert list(mine.target) == theirs.target
    for epoch in range(3):
        assert list(streamed.plan(1, epoch)) == list(held.plan(1, epoch))
    one, other = streamed.describe_data(), held.describe_data()
    assert one == other
    assert one["corpus"]["left_out"] > 0
    assert streamed.cautions() == held.cautions()


def test_a_training_on_a_stream_goes_on_at_the_exact_batch(folder, tmp_path, small_blocks):
    task = prepare(config_of(folder), tmp_path)
    whole = Trainer(task, "rotary", 1, tmp_path / "whole").run()
    assert whole.steps > 4

    def interrupt(record, loss):
        if record.step == 2:
            trainer._save()
            raise KeyboardInterrupt

    trainer = Trainer(task, "rotary", 1, tmp_path / "killed")
    with pytest.raises(KeyboardInterrupt):
        trainer.run(interrupt)
    again = prepare(config_of(folder), tmp_path)
    resumed = Trainer(again, "rotary", 1, tmp_path / "killed")
    assert resumed.record.step == 2
    losses = [[point["loss"] for point in r.training] for r in (whole, resumed.run())]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("last", [0, 1, 4])
def test_a_killed_session_is_gone_on_with(folder, tmp_path, small_blocks, monkeypatch, last):
    prepare(config_of(folder), tmp_path / "whole")
    run, real = tmp_path / "killed", store.write_part

    def killed(folder, number, *rest):
        if number > last:
            raise KeyboardInterrupt
        real(folder, number, *rest)

    monkeypatch.setattr(store, "write_part", killed)
    with pytest.raises(KeyboardInterrupt):
        prepare(config_of(folder), run)
    assert not (run / "config.json").exists()
    written = []
    monkeypatch.setattr(
        store, "write_part", lambda f, n, *rest: (written.append(n), real(f, n, *rest))
    )
    prepare(config_of(folder), run)
    assert written == list(range(last + 1, 6))
    assert content(run) == content(tmp_path / "whole")
    assert prepare(config_of(folder), run).data_facts["pairs"]["train"] == 400
    assert written == list(range(last + 1, 6))  # the third session tokenizes nothing


def test_a_full_disk_leaves_complete_parts(folder, tmp_path, small_blocks, monkeypatch):
    prepare(config_of(folder), tmp_path / "whole")
    run, real, count = tmp_path / "full", files.os.fsync, 0

    def full(handle):
        nonlocal count
        count += 1
        if count > 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        prepare(config_of(folder), run)
    assert not list(run.rglob("*.part"))
    monkeypatch.setattr(files.os, "fsync", real)
    prepare(config_of(folder), run)
    assert content(run) == content(tmp_path / "whole")


def test_a_damaged_part_is_named_and_written_again(folder, tmp_path, small_blocks):
    prepare(config_of(folder), tmp_path)
    whole = content(tmp_path)
    path = tmp_path / "pairs" / "00003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"00003\.safetensors is not a readable .*delete it"):
        prepare(config_of(folder), tmp_path)
    path.unlink()
    prepare(config_of(folder), tmp_path)
    assert content(tmp_path) == whole


def test_a_corpus_that_changed_between_sessions_is_reported(
    folder, tmp_path, small_blocks, monkeypatch
):
    run = tmp_path / "run"
    real = store.write_part
    monkeypatch.setattr(store, "write_part", lambda *_: (_ for _ in ()).throw(OSError("x")))
    with pytest.raises(OSError, match="x"):
        prepare(config_of(folder), run)
    monkeypatch.setattr(store, "write_part", real)
    text = (folder / "train.de").read_text(encoding="utf-8")
    (folder / "train.de").write_text(text.replace("Hund", "Esel", 1), encoding="utf-8")
    with pytest.raises(ValueError, match=r"earlier session.*the corpus has changed.*delete"):
        prepare(config_of(folder), run)
    (folder / "train.de").write_text(text, encoding="utf-8")
    prepare(config_of(folder), run)
    with pytest.raises(ValueError, match="another config: max_tokens is 7 there"):
        prepare(config_of(folder, max_tokens=6), run)
    (folder / "train.de").write_text(text.replace("Hund", "Esel", 1), encoding="utf-8")
    with pytest.raises(ValueError, match="the data has changed since"):
        prepare(config_of(folder), run)


def test_files_that_change_while_they_are_read_leave_nothing(folder, tmp_path, small_blocks):
    path = folder / "train.en"

    def progress(name, done, total):
        if name == "tokenizing" and not done:
            path.write_text(path.read_text(encoding="utf-8").replace("Haus", "Dach"))

    with pytest.raises(CorpusError, match=r"train\.en changed while it was read"):
        prepare(config_of(folder), tmp_path / "run", progress)
    assert not (tmp_path / "run" / "pairs").exists()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"one more\n", "the two sides differ in length: .* has 400 lines and .* has 401"),
        (b"\xff\n", "line 401 is not UTF-8"),
        (b"x" * 2**27, "line 401 is longer than 100000 bytes"),
        (b"\n\0", "has a NUL character"),
    ],
)
def test_a_wrong_file_is_named_before_anything_is_written(
    folder, tmp_path, small_blocks, line, why
):
    with (folder / "train.en").open("ab") as file:
        file.write(line)
    with pytest.raises(CorpusError, match=why):
        prepare(config_of(folder), tmp_path / "run")
    assert not (tmp_path / "run" / "pairs").exists()


def test_two_large_files_are_split_as_small_ones(folder, small_blocks, monkeypatch):
    monkeypatch.setattr(corpus, "HELD_OUT_MOST", 7)
    data = f"{folder / 'train.de'},{folder / 'train.en'}"
    held, streamed = corpus.load_corpus(data), corpus.load_corpus(data, stream=True)
    streamed.stream.scan()
    train = [pair for block in streamed.stream.blocks() for pair in block]
    assert tuple(train) == held.splits["train"]
    for split in ("validation", "test"):
        assert set(streamed.splits[split]) == set(held.splits[split])


def test_the_sample_is_spread_evenly_and_bounded(monkeypatch):
    monkeypatch.setattr(stream, "SAMPLE_CHARACTERS", 100)
    sample = stream._Sample()
    for number in range(1000):
        sample.add((f"{number:03d}", ""))
    assert [int(source) for source, _ in sample.pairs] == list(range(0, 1000, 32))
    assert sum(len(source) for source, _ in sample.pairs) <= 100


def test_progress_reaches_the_total(folder, tmp_path, small_blocks):
    seen = []
    prepare(config_of(folder), tmp_path, lambda *event: seen.append(event))
    assert seen[0] == ("checking the corpus", 70, None)
    assert ("checking the corpus", 400, 400) in seen
    steps = [done for name, done, total in seen if name == "tokenizing" and total == 400]
    assert steps == [0, 0, 70, 140, 210, 280, 350, 400]
    assert read_checked_json(tmp_path / "corpus.json")["pairs"]["train"] == 400
