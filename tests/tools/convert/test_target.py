"""OUT appears complete or not at all, whatever happens, and IN is never touched.

These fail if a failure, an interruption or a kill leaves a part of OUT under its name, if parts of
dead processes stay, or if anything outside OUT is written or removed.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from convertible_models import contents
from safetensors_files import LLAMA, llama_folder, tensors_file

from ropewalk import files, tools
from ropewalk.files import locked, machine_name
from ropewalk.tools.convert import conversion


@pytest.fixture
def model(tmp_path):
    return llama_folder(tmp_path / "in", shards=2)


def names(folder):
    return sorted(os.listdir(folder))


def test_files_other_than_weights_are_copied_and_folders_are_named(model):
    (model / "original").mkdir()
    (model / "original" / "consolidated.00.pth").write_bytes(b"x")
    (model / "training_args.bin").write_bytes(b"x")
    (model / ".gitattributes").write_text("x")
    found = tools.convert(model, model.parent / "out", to="interleaved")
    assert found.left_out == ("original/",)
    assert found.written
    assert set(names(model)) - set(names(model.parent / "out")) == {"original"}
    assert list(found.files) == names(model.parent / "out")
    assert found.bytes == sum(file.stat().st_size for file in model.iterdir() if file.is_file())


def test_only_rows_of_queries_and_keys_change(model):
    found = tools.convert(model, model.parent / "out", to="interleaved")
    before, after = contents(model), contents(model.parent / "out")
    assert {name for name in before if before[name] != after[name]} == {
        "config.json",
        *(tensor.file for tensor in found.tensors),
    }
    for name in before.keys() - {"config.json"}:
        assert len(before[name]) == len(after[name])
        assert sorted(before[name]) == sorted(after[name])
        length = 8 + int.from_bytes(before[name][:8], "little")
        if name.endswith(".safetensors"):
            assert before[name][:length] == after[name][:length]
    assert [(tensor.layer, tensor.what, tensor.rows) for tensor in found.tensors] == [
        (layer, f"self_attn.{name}_proj.weight", rows)
        for layer in range(2)
        for name, rows in (("k", 16), ("q", 32))
    ]


def test_a_dry_run_says_the_same_and_writes_nothing(model):
    dry = tools.convert(model, model.parent / "out", to="interleaved", dry_run=True)
    assert names(model.parent) == ["in"]
    real = tools.convert(model, model.parent / "out", to="interleaved")
    assert {**dry.to_dict(), "written": True} == real.to_dict()
    json.dumps(real.to_dict())


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("in", "OUT must not exist yet, but there is something at"),
        ("in/out", "OUT must not be inside IN"),
        ("nowhere/out", "OUT must be in a folder that exists"),
        ("file", "OUT must not exist yet"),
        ("empty", "OUT must not exist yet, but there is an empty folder at"),
        ("dangling", "OUT must not exist yet"),
        ("file/out", "OUT must be in a folder that exists"),
        ("link/out", "OUT must not be inside IN"),
        ("..", "OUT must not exist yet"),
    ],
)
def test_a_target_that_cannot_be_is_refused_before_anything_is_written(model, out, message):
    parent = model.parent
    (parent / "file").write_text("x")
    (parent / "empty").mkdir()
    (parent / "dangling").symlink_to("nothing")
    (parent / "link").symlink_to("in")
    before = names(parent), names(model)
    with pytest.raises(ValueError, match=message):
        tools.convert(model, parent / out, to="interleaved")
    assert (names(parent), names(model)) == before


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"to": "neox"}, ValueError, "'neox' of other code is called 'half' here"),
        ({"to": None}, ValueError, "to must be"),
        ({"to": "interleaved", "read_as": "x"}, ValueError, "read_as must be"),
        ({"to": "interleaved", "dry_run": 1}, TypeError, "dry_run must be True or False"),
        ({"to": "half"}, ValueError, "there is nothing to do"),
        ({"to": "half", "read_as": "half"}, ValueError, "are half already, as config.json says"),
        ({"to": "interleaved", "read_as": "interleaved"}, ValueError,
         'need only "rope_pairing": "interleaved" in config.json'),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_are_named(model, options, error, message):
    with pytest.raises(error, match=message):
        tools.convert(model, model.parent / "out", **options)
    with pytest.raises(TypeError, match="IN must be a path"):
        tools.convert(3, "out", to="half")
    with pytest.raises(ValueError, match="OUT must be a path"):
        tools.convert(model, "o\0ut", to="half")


def fails(model, error=OSError):
    """Convert, and check that it fails and that nothing is left."""
    before = contents(model)
    with pytest.raises(error) as caught:
        tools.convert(model, model.parent / "out", to="interleaved")
    assert names(model.parent) == ["in"]
    assert contents(model) == before
    return caught.value


def test_too_little_space_is_found_before_writing(model, monkeypatch):
    usage = shutil.disk_usage(model)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    error = fails(model)
    assert error.errno == errno.ENOSPC
    assert "bytes are needed, but only 100 are free; nothing was written" in error.strerror


@pytest.mark.parametrize("number", range(4))
def test_a_disk_that_is_full_in_the_middle_leaves_nothing(model, monkeypatch, number):
    real, calls = os.fsync, []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) > number:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    error = fails(model)
    assert error.strerror == "the disk is full; OUT was not written"
    assert error.filename == str(model.parent / "out")


def test_no_permission_is_named(model, monkeypatch):
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) != model.parent and real(path, mode)
    )
    assert "OUT must be in a folder that can be written to" in str(fails(model, ValueError))
    monkeypatch.setattr(os, "access", real)
    really = os.open

    def open_file(path, *args):
        if "token" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return really(path, *args)

    monkeypatch.setattr(os, "open", open_file)
    assert "tokenizer.json: no permission to read it" in str(fails(model, ValueError))


def test_a_target_that_appears_meanwhile_stays(model, monkeypatch):
    out = model.parent / "out"
    real = conversion.copy_reordered

    def copy(*args):
        out.mkdir(exist_ok=True)
        real(*args)

    monkeypatch.setattr(conversion, "copy_reordered", copy)
    with pytest.raises(ValueError, match="was made meanwhile"):
        tools.convert(model, out, to="interleaved")
    assert names(model.parent) == ["in", "out"]
    assert names(out) == []


def test_a_file_that_changes_meanwhile_is_noticed(model, monkeypatch):
    real = conversion.complete_folder

    def complete_folder(target):
        file = next(model.glob("*.safetensors"))
        file.write_bytes(tensors_file({"x": ("F32", (2,))}))
        return real(target)

    monkeypatch.setattr(conversion, "complete_folder", complete_folder)
    with pytest.raises(ValueError, match="has changed while it was converted"):
        tools.convert(model, model.parent / "out", to="interleaved")
    assert names(model.parent) == ["in"]


def lines_of_writing(run, interrupt_at=None):
    """Run, with Ctrl-C before a line of the code that writes; return the lines that were met."""
    traced, lines = {conversion.__file__, files.__file__}, []

    def trace(frame, event, arg):
        if frame.f_code.co_filename not in traced:
            return None
        if event == "line":
            lines.append((frame.f_code.co_filename, frame.f_lineno))
            if len(lines) - 1 == interrupt_at:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return lines


# Between `open` and `with`, an interruption leaves closing to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interruption_at_any_line_leaves_no_out_or_all_of_it(model, tmp_path, monkeypatch):
    """Ctrl-C at each line of the code that writes, the first time and the last time it is met."""
    out, calls, write = model.parent / "out", [], conversion._write
    monkeypatch.setattr(conversion, "_write", lambda *arguments: calls.append(arguments))
    tools.convert(model, out, to="interleaved")  # reads all that is to be written
    lines = lines_of_writing(lambda: write(*calls[0]))
    expected = contents(out)
    shutil.rmtree(out)
    last = {line: i for i, line in enumerate(lines)}
    first = {line: i for i, line in reversed(list(enumerate(lines)))}
    states = []
    for i in sorted({*first.values(), *last.values()}):
        lines_of_writing(lambda: write(*calls[0]), interrupt_at=i)
        states.append(out.exists())
        if out.exists():
            assert contents(out) == expected
            shutil.rmtree(out)
    assert states.count(False) > 30
    assert states[-1]
    write(*calls[0])
    assert names(model.parent) == ["in", "out"]


@pytest.fixture
def dead():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def test_parts_of_dead_processes_are_removed_and_others_stay(model, dead):
    here = machine_name()
    parts = {
        f".out.{here}-{dead}-0011aabb.part": False,
        f".other.{here}-{dead}-0011aabb.part": False,
        f".out.{here}-{os.getppid()}-0011aabb.part": True,
    }
    for name in parts:
        (model.parent / name).mkdir()
        (model.parent / name / "model.safetensors").write_bytes(b"x")
    (model.parent / f".link.{here}-{dead}-0011aabb.part").symlink_to(model)
    tools.convert(model, model.parent / "out", to="interleaved")
    assert {name: (model.parent / name).exists() for name in parts} == parts
    assert names(model) == sorted([*contents(model)])


def test_a_part_that_another_process_has_locked_stays(model, dead):
    """Its process may be in another container, where its number is not seen."""
    part = model.parent / f".out.{machine_name()}-{dead}-0011aabb.part"
    with locked(part):
        tools.convert(model, model.parent / "out", to="interleaved")
        assert part.is_dir()
    tools.convert(model, model.parent / "again", to="interleaved")
    assert not part.exists()


KILLS = """
import os, random, shutil, signal, sys, time
from pathlib import Path
from ropewalk import tools
source, out, whole = map(Path, sys.argv[1:])
begin = time.monotonic()
tools.convert(source, whole, to="interleaved")
usual, middle, draw = time.monotonic() - begin, 0, random.Random(0)
for _ in range(10):
    child = os.fork()
    if not child:
        tools.convert(source, out, to="interleaved")
        os._exit(0)
    time.sleep(draw.uniform(0, 1.2 * usual))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if out.exists():
        assert all((out / file.name).read_bytes() == file.read_bytes() for file in whole.iterdir())
        shutil.rmtree(out)
    else:
        middle += len(list(out.parent.glob(".out*")))
assert middle >= 3, middle  # killed in the middle
"""


def large_folder(folder, tensors, rows=1280, columns=2048, shards=2):
    """Write a llama of `tensors` equal projections, 5 MB each, and little else."""
    layers = tensors // 4
    config = {**LLAMA, "num_hidden_layers": layers, "num_attention_heads": 10, "head_dim": 128}
    config |= {"num_key_value_heads": 10, "hidden_size": columns}
    one = ("BF16", (rows, columns))
    changed = {
        f"model.layers.{layer}.self_attn.{name}_proj.weight": one
        for layer in range(layers)
        for name in "qkvo"
    }
    return llama_folder(folder, config, shards, layers=layers, dtype="BF16", **changed)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks, so that kills are exact")
def test_ten_kills_leave_no_out_or_all_of_it(tmp_path):
    model = large_folder(tmp_path / "in", tensors=8)
    before = contents(model)
    command = [sys.executable, "-c", KILLS, str(model), str(tmp_path / "out")]
    done = subprocess.run([*command, str(tmp_path / "whole")], capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    assert contents(model) == before
    tools.convert(model, tmp_path / "out", to="interleaved")
    assert names(tmp_path) == ["in", "out", "whole"]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    """A file of 105 MB in 20 tensors of 5 MB each: the peak is below one tensor and one chunk."""
    model = large_folder(tmp_path / "in", tensors=20, shards=1)
    assert (model / "model.safetensors").stat().st_size > 100e6
    tracemalloc.start()
    try:
        tools.convert(model, tmp_path / "out", to="interleaved")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10e6
