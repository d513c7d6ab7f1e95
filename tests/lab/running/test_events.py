"""Events of cells in files.

These fail if an event is lost, read twice or taken from another start of the cell, or if a line
that is half written breaks a reader.
"""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from ropewalk.lab.running.events import EVENTS_FILE, EventReader, event_writer, read_session


@given(st.lists(st.integers(0, 3), max_size=20))
def test_every_event_is_read_once_however_reads_fall(tmp_path_factory, reads):
    folder = tmp_path_factory.mktemp("cell")
    read, found, wanted = EventReader(folder, "a"), [], []
    with event_writer(folder, "a", {"host": "here"}) as write:
        for number, times in enumerate(reads):
            write({"step": number})
            wanted.append({"step": number})
            for _ in range(times):
                found += read()
    found += read()
    assert found == wanted
    assert read() == []


def test_events_of_another_start_are_not_read(tmp_path):
    read = EventReader(tmp_path, "mine")
    assert read() == []
    with event_writer(tmp_path, "another", {}) as write:
        write({"error": "of another"})
    assert read() == []


def test_a_cell_that_starts_again_under_the_same_name_is_followed(tmp_path):
    read = EventReader(tmp_path, "mine")
    for session in range(3):  # as after preemption
        with event_writer(tmp_path, "mine", {}) as write:
            write({"session": session})
            write({"step": session})
        assert read() == [{"session": session}, {"step": session}]


def test_a_pipe_or_a_folder_in_the_place_of_events_keeps_nobody_waiting(tmp_path):
    read = EventReader(tmp_path, "mine")
    os.mkfifo(tmp_path / EVENTS_FILE)
    assert (read(), read_session(tmp_path)) == ([], [])
    (tmp_path / EVENTS_FILE).unlink()
    (tmp_path / EVENTS_FILE).mkdir()
    assert (read(), read_session(tmp_path)) == ([], [])


def test_a_line_that_is_half_written_waits_and_damage_is_skipped(tmp_path):
    read = EventReader(tmp_path, "mine")
    with event_writer(tmp_path, "mine", {"host": "here"}) as write:
        write({"step": 1})
    path = tmp_path / EVENTS_FILE
    with path.open("ab") as file:
        file.write(b'{"step": ')
    assert read() == [{"step": 1}]
    with path.open("ab") as file:
        file.write(b'2}\n\xff\n{"step": 3}\n')
    assert read() == [{"step": 2}, {}, {"step": 3}]
    assert read_session(tmp_path)[1:] == [{"step": 1}, {"step": 2}, {"step": 3}]
    assert read_session(tmp_path)[0]["host"] == "here"
