"""A run of several processes: what its cells import, when they stop, who works on which.

These fail if what lies in the working directory is executed, if the command ends at Ctrl-C before
its cells have saved, if a cell trains on without its parent, if a cell that another command works
on is taken for failed or worked on twice, or if files that are damaged or gone are scored.
"""

import os
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from unittest.mock import Mock

import pytest
import torch
from cells_here import prepare_here
from tiny_tasks import TINY_COPY, TINY_TRANSLATION

from ropewalk.files import NotReadError, is_locked, locked, read_json, write_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.models import build_model, load_model
from ropewalk.lab.running import compare, run_folder, worker
from ropewalk.lab.running.cell import run_cell
from ropewalk.lab.running.events import read_session
from ropewalk.lab.running.launcher import Start, WorkerProcess
from ropewalk.lab.running.run_folder import fewest_parameters
from ropewalk.lab.running.scheduler import run_cells
from ropewalk.lab.tensors import read_tensors, write_tensors
from ropewalk.lab.training.checkpoints import save_together, snapshots
from ropewalk.lab.training.process_group import ALONE
from ropewalk.lab.training.trainer import Trainer


@pytest.mark.skipif(os.name == "nt", reason="there are no signals to send")
def test_an_interrupted_run_waits_until_its_cells_have_saved(tmp_path, monkeypatch):
    """Fails if the command has ended, and says that it can go on, while a cell is still saving."""
    slow = (
        "import pathlib, signal, sys, time\n"
        "told = []\n"
        "signal.signal(signal.SIGINT, lambda *_: told.append(True))\n"
        "pathlib.Path(sys.argv[1], 'begun').touch()\n"
        "while not told: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "pathlib.Path(sys.argv[1], 'saved').touch()\n"
        "sys.exit(130)\n"
    )
    monkeypatch.setattr(Start, "words", lambda *_: [sys.executable, "-SEc", slow, tmp_path])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_cells(make_config(settings=COPY), tmp_path, jobs=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "saved").exists()


COPY = {**TINY_COPY, "encodings": "none", "seeds": 1, "epochs": 2, "batch_tokens": 64}
COPY |= {"validations": 3, "keep": 2, "average": 2, "precision": "float32"}
CELL = Cell("none", 1)


def quietly(event):
    pass


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make a run of one cell once, for all."""
    folder, config = tmp_path_factory.mktemp("made") / "run", make_config(settings=COPY)
    prepare_here(config, folder)
    run_cell(folder, CELL, quietly)
    return folder, config


@pytest.fixture
def finished(made, tmp_path):
    """Give the folder of a finished run of one cell, and the config."""
    return shutil.copytree(made[0], tmp_path / "run"), made[1]


def test_a_model_beyond_memory_is_refused_before_anything_is_built(tmp_path):
    """Fails if a cell is started that can only end for want of memory, in a traceback."""
    config = make_config(settings={**COPY, "layers": 1000, "width": 2**17, "feed_forward": 2**17})
    wanted = r"its [\d,]+ parameters needs about 1,536,000\.0 GiB, cpu has .*fewer layers"
    with pytest.raises(ValueError, match=wanted):
        run_folder.prepare(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("task", ["translation", "copy"])
@pytest.mark.parametrize("kv_heads", [None, 1])
def test_a_model_has_the_parameters_that_are_counted_before(task, kv_heads):
    """Fails if a model that fits is refused: what is counted is all but biases and norms."""
    fields = {**COPY, "layers": 3}
    if task == "translation":
        fields = {**TINY_TRANSLATION, "encoder_layers": 2, "decoder_layers": 3}
    config = make_config(settings={**fields, "kv_heads": kv_heads, "encodings": "none"})
    model = build_model(config, "none", 1, 50)
    counted = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    assert fewest_parameters(config, 50) == counted


@pytest.mark.parametrize("error", [MemoryError("x"), RuntimeError("can't allocate memory")])
def test_memory_that_runs_out_in_a_cell_is_one_line(error):
    """Fails if the cell ends in a traceback."""
    events = []
    assert worker._ending(Mock(side_effect=error), events.append) == 1
    (event,) = events
    assert event["error"].startswith("out of memory: ")


@pytest.mark.slow
def test_a_cell_without_its_parent_saves_and_ends(tmp_path, traps):
    """Fails if it trains on, unsaved, when whoever started it is gone."""
    folder = tmp_path / "run"
    prepare_here(make_config(settings={**COPY, "epochs": 100_000}), folder)
    process = WorkerProcess(Start(folder, CELL, "scored", 1, "test"))
    while not any(event.get("phase") == "training" for event in read_session(CELL.folder(folder))):
        assert (end := process.end(within=0.05)) is None, end
    assert is_locked(CELL.folder(folder))
    process._process.stdin.close()  # as a parent that is gone
    assert process.end(within=300).code == 130
    assert (CELL.folder(folder) / "last.safetensors").exists()
    assert not is_locked(CELL.folder(folder))


@pytest.mark.slow
def test_a_cell_of_another_command_comes_last(finished, forking):
    """Fails if it is worked on twice, or given up."""
    folder, config = finished
    config = config.model_copy(update={"encodings": ("none", "rotary")})
    events, held = [], locked(CELL.folder(folder))
    held.__enter__()

    def watch(cell, event):
        events.append((cell.encoding, event.get("phase")))
        if (cell.encoding, event.get("phase")) == ("rotary", "finished"):
            held.__exit__(None, None, None)

    run_folder.prepare(config, folder)
    run_cells(config, folder, 1, watch)
    ends = [(name, phase) for name, phase in events if phase and phase.endswith("finished")]
    assert ends == [("rotary", "finished"), ("none", "already finished")]
    assert events.count(("none", "another command is running it")) == 1


def test_scores_of_another_model_are_not_kept(finished):
    """Fails if what was made from other weights, or before a kill by other settings, is kept."""
    folder, _ = finished
    path, score = (CELL.folder(folder) / name for name in ("model.safetensors", "x1.json"))
    before = score.stat().st_mtime_ns
    run_cell(folder, CELL, quietly)
    assert score.stat().st_mtime_ns == before
    tensors, facts = read_tensors(path)
    wanted = path.read_bytes()
    write_tensors(path, {name: tensor + 1 for name, tensor in tensors.items()}, facts)
    run_cell(folder, CELL, quietly)
    assert score.stat().st_mtime_ns != before
    assert path.read_bytes() == wanted


def test_a_mean_of_fewer_snapshots_is_refused(finished):
    folder, _ = finished
    snapshots(CELL.folder(folder))[0].unlink()
    (CELL.folder(folder) / "x1.json").unlink()
    with pytest.raises(ValueError, match=r"lacks snapshot-\d+.safetensors, which average=2 needs"):
        run_cell(folder, CELL, quietly)


def test_data_that_cannot_be_read_is_no_answer_of_the_model(finished):
    """Fails if the cell counts as scored, without a result."""
    folder, _ = finished
    (CELL.folder(folder) / "x1.json").unlink()
    (folder / "sequences.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match=r"sequences\.safetensors is not a readable"):
        run_cell(folder, CELL, quietly)


@pytest.mark.parametrize("name", ["x1.json", "corpus.json", "training.json"])
@pytest.mark.parametrize("content", [{}, [], {"record": 3, "vocabulary": "many", "decoding": 3}])
def test_a_file_of_other_facts_is_one_line_or_made_again(finished, name, content):
    """Fails if the message is not ours, or names no file."""
    folder, config = finished
    path = (folder if name == "corpus.json" else CELL.folder(folder)) / name
    write_json(path, content)
    said = ""
    try:
        run_folder.prepare(config, folder)
        run_cell(folder, CELL, quietly)
    except ValueError as error:
        said = str(error)
    assert str(path) in said if said else read_json(path) != content


def test_a_damaged_checkpoint_is_said_and_the_cell_trained_again(tmp_path):
    """Fails if the cell ends for good, or goes on from damage."""
    task = run_folder.prepare(make_config(settings=COPY), tmp_path)
    first = Trainer(task, "none", 1, tmp_path / "cell")
    first.step(task.plan(1, 0)[:1])
    first._save()
    path = tmp_path / "cell" / "last.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))
    with pytest.warns(UserWarning, match=r"last.safetensors is damaged.*from the first step"):
        assert Trainer(task, "none", 1, tmp_path / "cell").record.step == 0


def test_a_symlink_to_a_disk_that_is_away_is_no_untrained_cell(finished):
    """Fails if it is trained again, over what lies on that disk."""
    folder, _ = finished
    path = CELL.folder(folder) / "training.json"
    path.unlink()
    path.symlink_to("nowhere")
    with pytest.raises(NotReadError, match="missing; do not delete it"):
        run_cell(folder, CELL, quietly)
    path.rename(path.with_name("last.safetensors"))
    with pytest.raises(NotReadError, match=r"last.safetensors: a symlink to a file that is miss"):
        run_cell(folder, CELL, quietly)


@pytest.mark.parametrize("newer", [1, 2])
def test_the_checkpoint_of_more_steps_is_resumed_whatever_the_clock_says(tmp_path, newer):
    """Fails if a clock that jumps back costs steps."""
    task, folder = run_folder.prepare(make_config(settings=COPY), tmp_path), tmp_path / "cell"
    trainer, steps = Trainer(task, "none", 1, folder), {}
    for step in (1, 2):
        trainer.step(task.plan(1, 0)[:1])
        trainer._save()
        steps[step] = read_tensors(folder / "last.safetensors")
    save_together(ALONE, folder, newer, *steps[newer])
    write_tensors(folder / "last.safetensors", *steps[3 - newer])
    os.utime(folder / ("last.safetensors" if newer == 1 else "checkpoint-0000002"), (0, 0))
    assert Trainer(task, "none", 1, folder).record.step == 2


def test_no_command_loses_the_session_of_another(tmp_path, monkeypatch):
    """Fails if two commands that begin or end together write the list that they read before."""
    read = compare.read_sessions
    monkeypatch.setattr(compare, "read_sessions", lambda path: [read(path), time.sleep(0.02)][0])

    def session(name):
        compare._Sessions(tmp_path, datetime.now(UTC), time.monotonic(), name).close()

    with ThreadPoolExecutor(4) as together:
        list(together.map(session, "abcd"))
    assert sorted(session.launcher for session in read(tmp_path / "sittings.json")) == list("abcd")


class TestModelFiles:
    """Model files that are not what they say: an error that names the file, and nothing hangs."""

    def changed(self, finished, change):
        path = CELL.folder(finished[0]) / "model.safetensors"
        tensors, facts = read_tensors(path)
        change(tensors, facts)
        write_tensors(path, tensors, facts)
        with pytest.raises(ValueError, match=r"model\.safetensors") as caught:
            load_model(path, torch.device("cpu"))
        assert len(str(caught.value)) < 1000
        return str(caught.value)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *((name, 2**40) for name in ("width", "layers", "feed_forward", "heads", "kv_heads")),
            *(("layers", 900), ("width", 32), ("width", "wide"), ("task", "dance"), ("heads", -1)),
        ],
    )
    def test_sizes_that_the_file_has_not(self, finished, field, value):
        said = self.changed(finished, lambda _, facts: facts["config"].update({field: value}))
        assert field in said or "config requires" in said

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda t, f: t.pop("embedding.weight"), "lacks the tensor 'embedding.weight'"),
            (lambda t, f: t.pop(max(t)), "lacks the tensor"),
            (lambda t, f: t.update(more=torch.ones(1)), "has an unexpected tensor"),
            (lambda t, f: t.update({max(t): torch.ones(7)}), "config requires"),
            (lambda t, f: t[max(t)].fill_(torch.nan), "NaN or infinite"),
            (lambda t, f: f.pop("seed"), "must have a seed"),
            (lambda t, f: f.pop("config"), "it has no config"),
            (lambda t, f: f.update(encoding=3), "it has no config"),
            (lambda t, f: f.update(encoding="rotray"), "rotray"),
        ],
    )
    def test_tensors_and_facts_that_do_not_fit(self, finished, change, said):
        assert said in self.changed(finished, change)
