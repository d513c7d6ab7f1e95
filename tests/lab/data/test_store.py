"""The store of a large corpus: these fail when a pair comes back different, when a part that is
damaged or half-written is read, or when a message does not name the file.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk import files
from ropewalk.lab.data import store

rows = st.lists(st.integers(4, 60_000), max_size=9)
parts_of_pairs = st.lists(st.lists(st.tuples(rows, rows), max_size=8), min_size=1, max_size=4)


def write(folder, parts, vocabulary=2**16):
    for number, pairs in enumerate(parts):
        flat = [i for pair in pairs for side in pair for i in side]
        lengths = np.array([[len(s), len(t)] for s, t in pairs], np.uint32).reshape(-1, 2)
        ids = np.array(flat, store.ids_dtype(vocabulary))
        store.write_part(folder, number, {"ids": ids, "lengths": lengths}, {"key": "k"})


@settings(max_examples=15)
@given(parts_of_pairs, st.sampled_from([2**16, 2**17]))
def test_pairs_come_back_as_they_were_written(tmp_path_factory, parts, vocabulary):
    folder = tmp_path_factory.mktemp("store")
    write(folder, parts, vocabulary)
    store.write_index(folder, len(parts), {})
    split = store.MappedSplit(folder)
    pairs = [pair for part in parts for pair in part]
    assert list(zip(split.source, split.target, strict=True)) == pairs
    assert split.lengths.tolist() == [[len(s), len(t)] for s, t in pairs]
    if sys.platform == "linux":  # not copied
        assert str(folder / "00000.safetensors") in Path("/proc/self/maps").read_text("utf-8")
    with pytest.raises(IndexError):
        split.source[len(pairs)]


def test_a_store_that_is_not_complete_is_not_read(tmp_path):
    write(tmp_path, [[([5, 6], [7])]])
    with pytest.raises(ValueError, match=r"is not complete: it has no store\.json"):
        store.MappedSplit(tmp_path)


def test_parts_after_an_absent_one_do_not_count(tmp_path):
    write(tmp_path, [[([5], [6])], [([7], [8])], [([9], [10])]])
    (tmp_path / "00001.safetensors").unlink()
    (tmp_path / f".00001.safetensors.{files.machine_name()}-999999999-0a.part").write_bytes(b"half")
    assert len(store.complete_parts(tmp_path)) == 1
    assert not list(tmp_path.glob(".*.part"))


def test_a_damaged_part_is_named(tmp_path):
    write(tmp_path, [[([5], [6])], [([7], [8])]])
    path = tmp_path / "00001.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match=rf"{path.name} is damaged.*delete it.*makes it again"):
        store.complete_parts(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"text of another program"])
def test_a_part_that_is_not_one_is_named(tmp_path, content):
    write(tmp_path, [[([5, 6], [6])]])
    store.write_index(tmp_path, 1, {})
    (tmp_path / "00000.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"00000\.safetensors is not a readable safetensors file"):
        store.MappedSplit(tmp_path)
