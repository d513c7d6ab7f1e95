"""The command line from corpus to report, as a user types it, on a corpus of a few sentences.

These fail if a run is not resumed or is trained twice, if a mistake ends in a traceback or in
another exit code than 2, or if what was written before an interruption is lost.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from cells_here import run_cells_here

from ropewalk import __version__
from ropewalk.cli import run_command
from ropewalk.lab.data.corpus import load_corpus
from ropewalk.lab.data.texts import load_texts
from ropewalk.lab.decoding.translator import read_sentences
from ropewalk.lab.results import read_results
from ropewalk.lab.running import compare as comparison
from ropewalk.lab.running.status import read_status

SIZES = ["width=16", "heads=2", "feed_forward=32"]
TINY = [
    *(*SIZES, "vocabulary=80", "encoder_layers=1", "decoder_layers=1", "batch_tokens=128"),
    *("validations=2", "average=2", "beam=2", "precision=float32"),
]
COPY = ["--task", "copy", "--preset", "quick"]
TINY_COPY = [*COPY, *SIZES, "layers=1", "examples=30", "test_examples=4", "train_length=3"]


def ropewalk(*words, cwd, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "ropewalk.cli", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=200,
        **kwargs,
    )


def tiny(**changed):
    """The small config with some fields changed: none may be given twice."""
    fields = dict(setting.split("=") for setting in TINY) | {k: str(v) for k, v in changed.items()}
    return [f"{name}={value}" for name, value in fields.items()]


WHILE_STARTING = """
import atexit
import os
import signal
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "torch":
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                try:
                    signal.raise_signal(signal.SIGINT)
                except KeyboardInterrupt:  # again: in C++ that aborts
                    os._exit(7)
                raise

def heeds_no_more():
    # Behind this the interpreter takes Ctrl-C for an end without a status of ours.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        os._exit(8)

atexit.register(heeds_no_more)
sys.meta_path.insert(0, Interrupt())
from ropewalk.cli import main
main()
"""


@pytest.mark.parametrize("command", ["compare", "translate"])
def test_ctrl_c_while_torch_is_imported_is_one_line(command, tmp_path):
    words = [sys.executable, "-P", "-c", WHILE_STARTING, command]
    words += ["nothing"] * (command == "translate")
    done = subprocess.run(words, cwd=tmp_path, input="", capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr.startswith("ropewalk: interrupted")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    nouns = [("Hund", "dog"), ("Vogel", "bird"), ("Mann", "man"), ("Baum", "tree"), ("Bär", "bear")]
    pairs = [
        (f"Der {a} sieht den {b}en {c}.", f"The {x} sees the {y} {z}.")
        for a, x in nouns
        for b, y in (("alt", "old"), ("klein", "small"), ("grün", "green"))
        for c, z in nouns
    ]
    for name, rows in (("train", pairs[:55]), ("val", pairs[55:65]), ("test", pairs[60:])):
        (folder / f"{name}.de").write_text("".join(f"{s}\n" for s, _ in rows), encoding="utf-8")
        (folder / f"{name}.en").write_text("".join(f"{t}\n" for _, t in rows), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(corpus):
    """The folder of a comparison whose cells have processes, its command, and what it printed."""
    words = ["compare", "--data", str(corpus), "--seeds", "1", "--out", str(corpus / "run")]
    words.append("epochs=3")
    with pytest.MonkeyPatch.context() as patching, redirect_stdout(StringIO()) as printed:
        patching.setattr(sys, "argv", ["ropewalk", *words, *TINY])
        numbers = [signal.SIGTERM, signal.SIGHUP]
        handlers = [signal.getsignal(number) for number in numbers]
        assert run_command() == 0
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
    return corpus / "run", words, printed.getvalue()


def test_compare_fills_the_run_folder(run):
    folder, _, printed = run
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in results["encodings"]] == ["sinusoidal", "rotary"]
    for row in results["encodings"]:
        (cell,) = row["cells"]
        assert cell["status"] == "finished"
        assert cell["peak_memory_bytes"] > 2**20
        assert cell["tokens_per_s"] > 0
        assert len(cell["scores"]["test"]["sentence_bleu"]) == 15
        files = {path.name for path in (folder / "cells" / row["slug"] / "seed-1").iterdir()}
        assert {"model.safetensors", "test.hypotheses.txt", "training.json"} <= files
        assert row["name"] in printed
    assert results["encodings"][1]["summary"]["test"]["versus_first"]["p"] > 0
    assert results["corpus"]["seen_in_training"]["test"]["pairs"] == 0
    assert results["command"].startswith("ropewalk compare")
    assert (folder / "report.html").stat().st_size > 100_000
    next_steps = printed.splitlines()[-1].removeprefix("Next: ").split(", ")
    model = folder / "cells" / "rotary" / "seed-1"
    assert next_steps == [f"ropewalk explore {folder}", f"ropewalk translate {model}"]
    # 15 pairs are few to test on, and both the command and the report say so.
    assert "warning: test has 15 pairs" in printed
    assert any("test has 15 pairs" in note for note in results["corpus"]["notes"])


def test_what_is_finished_is_not_done_again(run, command, monkeypatch, forking):
    folder, words, _ = run
    cell = folder / "cells" / "rotary" / "seed-1"
    before = {path: path.stat().st_mtime_ns for path in cell.iterdir()}
    status, out, _ = command(*words, *TINY)
    assert status == 0
    assert {path: path.stat().st_mtime_ns for path in cell.iterdir()} == before
    assert "rotary, seed 1: already finished" in out
    # Another beam needs other translations, but no other training.
    monkeypatch.setattr(comparison, "run_cells", run_cells_here)
    assert command(*words, *tiny(beam=1))[0] == 0
    after = {path: path.stat().st_mtime_ns for path in cell.iterdir()}
    assert after[cell / "training.json"] == before[cell / "training.json"]
    assert after[cell / "test.json"] != before[cell / "test.json"]


def test_another_config_in_the_same_folder_is_refused(run, mistake):
    assert "width is 16 there and 32 here" in mistake(*run[1], *tiny(width=32))


def test_translate_reads_a_file_and_standard_input(run, tmp_path, command, mistake, monkeypatch):
    folder, _, _ = run
    text = "Der Hund sieht den Vogel.\n\nDer Mann sieht den Baum.\n"
    (tmp_path / "in.de").write_text(text, encoding="utf-8")
    (tmp_path / "latin1.de").write_bytes("Bär\n".encode("latin-1"))
    model = folder / "cells" / "rotary" / "seed-1"

    def pipe(text):
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode())))

    status, out, _ = command("translate", model, tmp_path / "in.de")
    lines = out.split("\n")
    assert (status, len(lines), bool(lines[0]), lines[1]) == (0, 4, True, "")
    pipe(text)
    assert command("translate", model) == (0, out, "")
    for said, written, *words in (
        ("rotary/seed-1", text, folder),
        ("characters", "Hund " * 4_900 + "\n", model),
        ("tokens", "." * 3_000 + "\n", model),
        ("beam must be an integer from 1 to 100, got 10000", text, model, "--beam", "10000"),
        ("of at least 0 and at most 100, got inf", text, model, "--length-penalty", "inf"),
        ("must be UTF-8, got byte 0xe4 in line 1", "", model, tmp_path / "latin1.de"),
    ):
        pipe(written)
        assert said in mistake("translate", *words)


@pytest.mark.parametrize("which", ["compare", "train"])
def test_train_takes_what_compare_takes(which, command):
    """Fails if one of them knows an option of the data, the model or the seeds by another name."""
    for encodings, seeds in (("--encodings", "--seeds"), ("--encoding", "--seed")):
        _, _, err = command(which, encodings, "rotray", seeds, "1")
        assert "did you mean 'rotary'" in err


@pytest.mark.slow
def test_a_generated_task_from_the_command_line(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(comparison, "run_cells", run_cells_here)
    status, out, _ = command("compare", *TINY_COPY, "--encodings", "none", "length_multiples=1,2")
    assert status == 0
    assert "exact match, %; x1 is 3 letters, the trained length" in out
    assert (tmp_path / "runs" / "copy-quick" / "report.html").exists()


@pytest.mark.slow
def test_a_training_that_diverged_is_no_model(tmp_path, command, monkeypatch, forking):
    """Fails if it is said to have finished, with the path of a model that is not there."""
    monkeypatch.chdir(tmp_path)
    words = ["train", *TINY_COPY, "learning_rate=1e38", "epochs=5", "--out", "run"]
    for already in ("", "already "):
        status, out, err = command(*words)
        assert status == 1
        assert re.fullmatch(
            r"ropewalk: rotary, seed 1: training diverged after \d+ of \d+ steps: .*"
            r"choose a lower learning_rate than 1e\+38.* --out\n",
            err,
        )
        said = rf"^rotary, seed 1: {already}diverged after \d+ steps$"
        assert re.search(said, out, re.MULTILINE)
        assert "finished" not in out
        assert "safetensors" not in out


@pytest.mark.slow
def test_a_thread_of_an_imported_file_keeps_no_process(tmp_path, forking):
    """Fails if a command or its cell waits, at its end, for a thread that never ends."""
    (tmp_path / "mine.py").write_text(
        "import threading\n"
        "from ropewalk.encodings import REGISTRY, Encoding\n"
        "REGISTRY['mine'] = lambda shape: Encoding()\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
    )
    words = ["train", *TINY_COPY, "--import", "mine.py"]
    done = ropewalk(*words, "--encoding", "mine", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / done.stdout.split()[-1]).is_file()
    mistaken = ropewalk(*words, "--encoding", "mnie", cwd=tmp_path)
    assert (mistaken.returncode, len(mistaken.stderr.splitlines())) == (2, 1)


def heed_only(number: signal.Signals) -> None:
    """Ignore Ctrl-C as a shell's background job does, unless it is the signal to come.

    A cell that inherited this went on for ever after its parent was ended. Under nohup, SIGHUP is
    ignored too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(number, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_saves_and_the_same_command_goes_on(tmp_path, number, forking):
    words = ["train", *TINY_COPY, "epochs=4000", "validations=4000", "--out", tmp_path / "run"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ropewalk.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: heed_only(number),
    )
    cell = tmp_path / "run" / "cells" / "rotary" / "seed-1"
    started = time.monotonic()
    while not list(cell.glob("snapshot-*")) and time.monotonic() - started < 300:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert said.strip() == "ropewalk: interrupted; run the same command again to resume"
    if number != signal.SIGTERM:
        return
    # It does, from the step that it says.
    again = subprocess.Popen(
        [sys.executable, "-m", "ropewalk.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: heed_only(signal.SIGHUP),
    )
    assert any("resumed from step" in line for line in again.stdout)
    again.send_signal(signal.SIGHUP)
    again.communicate(timeout=300)
    assert again.returncode == 130
    assert (cell / "last.safetensors").exists()
    assert not (cell / "training.json").exists()
    assert not list((tmp_path / "run").rglob("*.part"))


LONG = "x" * 120_000
COMPARE_COPY = ["compare", *COPY]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "--preset", "quik"], "did you mean 'quick'"),
        (["compare", "wdith=3"], "did you mean 'width'"),
        (["compare", "--task", "cpoy"], "did you mean 'copy'"),
        (["compare", "--task", "causal-lm", "--data", "nowhere"], "nowhere"),
        (["compare", "--data", "nowhere"], "nowhere"),
        (["compare", "--encodings", "rotray"], "did you mean 'rotary'"),
        (["translate", "nowhere"], "nowhere"),
        (["compare", "seeds=1", "seeds=2"], "'seeds' must be given once, got 'seeds=1' and 'seeds"),
        (
            ["train", "encodings=5", "--encodings", "none"],
            "got 'encodings=5' and '--encodings none",
        ),
        (["train", "preset=quick", "--preset", "annotated"], "and '--preset annotated'"),
        (["translate", "m", "--beam", "0"], "--beam must be an integer of at least 1, got '0'"),
        (["translate", "m", "--length-penalty", "-1"], "must be a number of at least 0, got '-1'"),
        (["compare", "--fo\x1bo"], "ropewalk compare has no option '--fo\\x1bo'"),
        (["train", "--steps=3"], "no option '--steps'; write the field epochs=VALUE"),
        (["compare", "--learning-rate", "3"], "; write the field learning_rate=VALUE"),
        (["train", "steps=3"], "'steps' is not a field of a config; write the field epochs=VALUE"),
        (["compare", "--job", "3"], "did you mean '--jobs'?; see ropewalk compare --help"),
        (["compare", "--jobs"], "--jobs takes a value"),
        (["bench", "--compile=3"], "--compile takes no value"),
        (["translate"], "MODEL must be given; see ropewalk translate --help"),
        (["translate", "a", "b", "c" * 1000], "takes fewer arguments, got 'ccc"),
        (["foo\x07" + "o" * 1000], "bench, got 'foo"),
        (["trian"], "got 'trian'; did you mean 'train'?; see ropewalk --help"),
        (["compare", "--data", LONG], "--data must be a path of at most 4,096 bytes"),
        (["compare", "--data", "d/" * 2_000 + "x"], "d/d/d"),
        (["compare", "--import", f"{LONG}.py"], "xxx"),
        (["compare", f"{LONG}=3"], "is not a field of a config"),
        (["translate", "a\x1b]0;b\x07c"], r"got a\x1b]0;b\x07c"),
        (["compare", "device=meta"], "device must be one that this machine has, auto, cpu"),
        ([*COMPARE_COPY, "--note", "b\udc80"], "note must be valid UTF-8"),
        ([*COMPARE_COPY, "--out", "b\udc80"], "--out must be valid UTF-8"),
        ([*COMPARE_COPY, "--out", ""], "--out must name a path, got an empty one"),
        (
            [*COMPARE_COPY, "--out", "a" * 300],
            "--out must be a folder that can be created, got 'aaa",
        ),
        ([*COMPARE_COPY, "--out", "a/" * 2_000], "must be a folder that can be created, got 'a/a"),
        ([*COMPARE_COPY, "--import", "a" * 300 + ".py"], "File name too long"),
        (
            ["compare", "--sweep", "learning_rate"],
            "--sweep must have the form field=value,value,…, go",
        ),
        (["compare", "--sweep", "clip=1", "--sweep", "clip=2"], "must name 'clip' once"),
        (["compare", "clip=1", "--sweep", "clip=1,2"], "'clip' must be given once, got a value"),
        (["tune", "nowhere", "beam=1,2"], "RUN must be the folder of a finished run"),
        (["tune", "nowhere"], "SWEEP must be given; see ropewalk tune --help"),
        (["fields", "--task", "cpoy"], "did you mean 'copy'"),
        (["fields", "--task", "copy", "--preset", "annotated"], "preset must be default or quick"),
        (["encodings", "--import", "nowhere.py"], "nowhere.py: no such file"),
        (["tasks", "copy"], "ropewalk tasks takes fewer arguments, got 'copy'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, said, tmp_path, mistake, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in (message := mistake(*words))
    assert len(message) < 1_500
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_folder_that_cannot_be_written_is_one_line(corpus, mistake):
    said = mistake("compare", "--data", corpus, "--out", os.devnull + "/run", *TINY)
    assert said.startswith(f"ropewalk: --out must be a folder, got {os.devnull}")


def test_no_words_at_all_are_answered_by_the_help_and_the_version_is_no_mistake(tmp_path, command):
    status, out, err = command()
    assert (status, out, err.split()[:2]) == (2, "", ["Usage:", "ropewalk"])
    done = ropewalk("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n")


@pytest.mark.parametrize("name", [LONG, f"{LONG}.tsv", "~nobody-has-this-name/x"])
@pytest.mark.parametrize(
    "read",
    [
        load_corpus,
        load_texts,
        lambda name: load_texts(f"{name},{name}"),
        lambda name: read_sentences(Path(name)),
        lambda name: read_results(Path(name)),
        lambda name: read_status(Path(name)),
    ],
)
def test_a_file_of_an_endless_name_or_of_nobody_is_refused_in_few_words(read, name):
    with pytest.raises(ValueError, match=r"xxx|~nobody-") as caught:
        read(name)
    assert len(str(caught.value)) < 700
