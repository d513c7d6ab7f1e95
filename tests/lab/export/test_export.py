"""`ropewalk export` from a trained run to a folder that the engine serves.

These fail if the folder lacks a file, if the code in its README does not translate as ropewalk
does, if a mistake is more than one line or another status than 2, or if it leaves anything behind.
"""

import os
import random
import re
import sys

import pytest

pytest.importorskip("ctranslate2")

from cells_here import run_cells_here
from tiny_tasks import config_of, translation_config

from ropewalk.lab.decoding.translator import Translator, translate_ids
from ropewalk.lab.export import export as module
from ropewalk.lab.export.export import export
from ropewalk.lab.running.run_folder import prepare

LINES = ["Der a sieht u.", "Der f sieht z z z.", "a", "Der"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder with the runs of two tasks, tiny and hardly trained."""
    folder = tmp_path_factory.mktemp("runs")
    rows = [(f"Der {a} sieht {b}.", f"The {b} sees {a}.") for a in "abcdef" for b in "uvwxyz"]
    for name, part in (("train", rows[:26]), ("val", rows[26:31]), ("test", rows[31:])):
        for side, language in enumerate(("de", "en")):
            text = "".join(f"{row[side]}\n" for row in part)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    encodings = ("rotary", "learned(max_positions=24)", "fire")
    config = translation_config(data=str(folder), encodings=encodings, seeds=(1,), vocabulary=60)
    other = config_of("copy", encodings=("rotary",), seeds=(1,))
    for name, each in (("run", config), ("copy", other)):
        prepare(each, folder / name)
        run_cells_here(each, folder / name, 1, None)
    return folder


def cell(runs, slug, run="run"):
    return runs / run / "cells" / slug / "seed-1"


@pytest.mark.slow
@pytest.mark.parametrize("slug", ["rotary", "learned-max-positions-24"])
def test_the_code_of_the_readme_translates_as_ropewalk(runs, slug, tmp_path, monkeypatch):
    exported = export(cell(runs, slug), tmp_path / "out", to="ctranslate2")
    files = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    assert files.keys() == {
        "README.md",
        "config.json",
        "model.bin",
        "shared_vocabulary.json",
        "tokenizer.json",
    }
    assert exported.bytes == sum(files.values())
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert ("Positions end at 24 tokens" in readme) == slug.startswith("learned")
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    monkeypatch.chdir(tmp_path / "out")
    # Models that are hardly trained often write no end mark; both searches then end at a limit.
    short = "min_decoding_length=0, max_decoding_length=8"
    assert "min_decoding_length=0" in code
    names = {"lines": LINES}
    exec(code.replace("min_decoding_length=0", short), names)
    translator = Translator.load(cell(runs, slug), beam=1, device="cpu")
    for result, text, line in zip(names["results"], names["texts"], LINES, strict=True):
        own = translator([line])[0]
        ids = translator.tokens.encode([line])[0]
        assert names["tokens"][LINES.index(line)] == translator.tokens.pieces(ids)
        assert own == text if len(result.hypotheses[0]) < 8 else own.startswith(text.rstrip())


@pytest.mark.slow
def test_the_vocabulary_is_that_of_the_run(runs, tmp_path):
    export(cell(runs, "rotary"), tmp_path / "out", to="ctranslate2")
    of_run = (runs / "run" / "tokenizer.json").read_bytes()
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == of_run


@pytest.mark.slow
def test_the_command_writes_next_to_the_model_and_prints_how_to_serve(runs, command, mistake):
    model = cell(runs, "rotary") / "model.safetensors"
    status, out, err = command("export", "--to", "ctranslate2", model)
    assert (status, err) == (0, "")
    assert f"written to {model.parent / 'ctranslate2'}\n" in out
    assert module.SERVE in out
    assert "OUT must not exist yet" in mistake("export", "--to", "ctranslate2", model)


@pytest.mark.longer  # trains three models
@pytest.mark.slow
def test_trained_models_translate_a_test_split_identically(tmp_path):
    """Greedily, in batches of all lengths, with end marks that the models have learned to write."""
    import ctranslate2

    draw, data = random.Random(0), tmp_path / "data"
    data.mkdir()
    texts = [" ".join(draw.choices("abcdefgh", k=draw.randint(1, 8))) for _ in range(400)]
    for name, part in (("train", texts[:300]), ("val", texts[300:310]), ("test", texts[310:])):
        for language in ("de", "en"):
            (data / f"{name}.{language}").write_text("\n".join(part) + "\n", encoding="utf-8")
    encodings = ("sinusoidal", "rotary", "t5")
    more = {"epochs": 12, "width": 32, "batch_tokens": 256, "dropout": 0, "learning_rate": 0.005}
    config = translation_config(
        data=str(data), encodings=encodings, seeds=(1,), vocabulary=40, **more
    )
    prepare(config, tmp_path / "run")
    run_cells_here(config, tmp_path / "run", 1, None)
    for encoding in encodings:
        out = tmp_path / encoding
        export(cell(tmp_path, encoding), out, to="ctranslate2")
        translator = Translator.load(cell(tmp_path, encoding), beam=1, device="cpu")
        ids = translator.tokens.encode(texts[310:])
        results = ctranslate2.Translator(str(out)).translate_batch(
            [translator.tokens.pieces(row) for row in ids],
            beam_size=1,
            min_decoding_length=0,
            max_batch_size=512,
            batch_type="tokens",
        )
        found = [ranked[0].ids for ranked in translate_ids(translator.model, ids, beam=1)]
        limits = [2 * (len(row) + 1) + 10 for row in ids]
        assert sum(len(own) < most for own, most in zip(found, limits, strict=True)) > 45
        others = [
            (own, result.hypotheses[0])
            for own, result, most in zip(found, results, limits, strict=True)
            if translator.tokens.pieces(own) != result.hypotheses[0][:most]
        ]
        assert not others, encoding


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run/cells/fire/seed-1"], "encoding 'fire' can't be exported to ctranslate2: CTrans"),
        (["run"], "model must name one of the models in run: "),
        (["copy"], "must be a model for task translation, got one for copy"),
        (["nowhere"], "must be an existing file or folder, got nowhere"),
        (["run/cells/rotary/seed-1", "train.de"], "OUT must not exist yet, but there is something"),
        (["run/cells/rotary/seed-1", "no/out"], "OUT must be in a folder that exists"),
        (["run/cells/rotary/seed-1", ""], "OUT must name a path, got an empty one"),
        (["run/cells/rotary/seed-1", "--to", "ctranslat"], "did you mean 'ctranslate2'?"),
        (["train.de"], "train.de"),
        (["x" * 5_000], "MODEL must be a path of at most 4,096 bytes"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_left(runs, words, said, mistake, monkeypatch):
    monkeypatch.chdir(runs)
    before = sorted(runs.rglob("*"))
    to = [] if "--to" in words else ["--to", "ctranslate2"]
    assert said in mistake("export", *words, *to)
    assert sorted(runs.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(runs, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ValueError, match="OUT must be in a folder that can be written to"):
        export(cell(runs, "rotary"), tmp_path / "out", to="ctranslate2")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_ends_halfway_leaves_nothing(runs, tmp_path, monkeypatch, error):
    def fail(model):
        raise error

    monkeypatch.setattr(module, "_limit", fail)  # by then, the other files are written
    said = "the disk is full; OUT was not written" if isinstance(error, OSError) else None
    with pytest.raises(type(error), match=said):
        export(cell(runs, "rotary"), tmp_path / "out", to="ctranslate2")
    assert not list(tmp_path.iterdir())


def test_without_the_engine_the_extra_is_named(runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(ValueError, match=r"pip install .*\[ctranslate2\]"):
        export(cell(runs, "rotary"), tmp_path / "out", to="ctranslate2")
