"""Any number of generated pairs: these fail when they depend on the number of processes or on where
an earlier session ended, when a sentence occurs twice, or when today's pairs change.
"""

import numpy as np
import pytest

from ropewalk.lab.config_reader import make_config
from ropewalk.lab.data import corpus
from ropewalk.lab.data.phrases import LONGEST, SHORTEST, SIZES, many, worker
from ropewalk.lab.data.store import write_part
from ropewalk.lab.presets import TRANSLATION_EXAMPLES

BASE = {
    "train": [(f"Satz {i}", f"sentence {i}") for i in range(20)],
    "validation": [("ja", "yes")],
    "test": [("nein", "no")],
    "long": [("vielleicht", "perhaps")],
}


@pytest.fixture
def base(monkeypatch):
    """The first pairs are few, and so are the pairs of a block."""
    monkeypatch.setattr(many, "generate", lambda: BASE)
    monkeypatch.setattr(many, "SIZES", {"train": 20})


def blocks_of(examples, folder, done=0, **fields):
    return list(many.PhraseStream(examples, block=50, **fields).blocks(folder, done))


def test_pairs_are_in_order_and_different_for_any_number_of_processes(base, tmp_path, monkeypatch):
    found = {}
    for jobs in (1, 3):
        monkeypatch.setattr(many, "cores", lambda jobs=jobs: jobs)
        found[jobs] = [block.pairs for block in blocks_of(200, tmp_path)]
    assert found[1] == found[3]
    assert found[1][0] == BASE["train"]
    pairs = [pair for block in found[1] for pair in block]
    assert len(pairs) == 200
    assert len({sentence for pair in pairs for sentence in pair}) == 400
    for pair in pairs[20:]:
        assert all(SHORTEST <= len(sentence.split()) <= LONGEST for sentence in pair)
    fewer = [pair for block in blocks_of(90, tmp_path) for pair in block.pairs]
    assert fewer == pairs[:90]


def test_a_later_session_goes_on_with_the_same_pairs(base, tmp_path):
    whole = blocks_of(260, tmp_path)
    for block in whole[:3]:
        arrays = {"ids": np.empty(0, np.uint16), "lengths": np.empty((0, 2), np.uint32)}
        write_part(tmp_path, block.number, {**arrays, **block.arrays}, {})
    rest = blocks_of(260, tmp_path, done=3)
    assert [(b.number, b.pairs) for b in rest] == [(b.number, b.pairs) for b in whole[3:]]


def test_a_sentence_of_any_split_does_not_occur_again(base, tmp_path, monkeypatch):
    drawn = worker.draw_block(0, 50)
    splits = {**BASE, "test": [drawn[3]], "long": [("vielleicht", drawn[5][1])]}
    monkeypatch.setattr(many, "generate", lambda: splits)
    pairs = [pair for block in blocks_of(120, tmp_path) for pair in block.pairs]
    assert drawn[3] not in pairs
    assert drawn[5] not in pairs
    assert drawn[4] in pairs


def test_the_other_direction_has_the_same_pairs(base, tmp_path):
    turned = [pair[::-1] for block in blocks_of(60, tmp_path, swap=True) for pair in block.pairs]
    assert turned == [pair for block in blocks_of(60, tmp_path) for pair in block.pairs]


def test_a_process_that_ends_is_reported(base, tmp_path, monkeypatch):
    monkeypatch.setattr(many.sys, "executable", "/bin/true")
    with pytest.raises(OSError, match="a process that generates sentences has ended"):
        blocks_of(60, tmp_path)


def test_fewer_pairs_than_today_are_the_first_of_them(base):
    held = corpus.load_corpus("phrases", examples=5)
    assert held.splits["train"] == tuple(BASE["train"][:5])
    assert held.splits["test"] == tuple(BASE["test"])


@pytest.mark.slow
def test_large_numbers_are_streamed(base, monkeypatch):
    monkeypatch.setattr(corpus, "LARGE_PAIRS", 100)
    assert corpus.load_corpus("phrases", examples=101, stream=True).stream.pairs == 101
    held = corpus.load_corpus("phrases", examples=100, stream=True)
    assert held.stream is None
    assert len(held.splits["train"]) == 100


def test_the_default_is_the_size_of_the_generator():
    assert SIZES["train"] == TRANSLATION_EXAMPLES


def test_the_number_of_pairs_is_a_field_of_generated_corpora_only():
    assert "examples" not in make_config().facts()
    assert make_config(settings={"examples": 300}).training()["examples"] == 300
    with pytest.raises(ValueError, match=r"examples counts generated pairs, got 5 with data=x"):
        make_config(settings={"examples": 5, "data": "x"})
