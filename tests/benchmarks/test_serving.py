"""The rows of the serving benchmark translate with the same weights.

These fail if transformers' model computes something else than ropewalk's from the same weights, if
an encoding that it cannot hold is not refused, or if the script no longer runs to the end.
"""

import subprocess
import sys

import pytest
import torch
from scripts import load_scripts

pytest.importorskip("ctranslate2")
pytest.importorskip("transformers")

from exported import random_model, random_sources

from ropewalk.lab.decoding.translator import translate_ids
from ropewalk.lab.tokens import PAD

serving, ways = load_scripts("benchmarks", "serving", "serving_ways")


@pytest.mark.parametrize("encoding", ["sinusoidal", "learned", "none"])
def test_transformers_translates_as_ropewalk_from_the_same_weights(encoding):
    model, sources = random_model(encoding), random_sources(6, longest=12)
    with torch.no_grad():  # a trained model never predicts padding, which transformers masks
        model.embedding.weight[:, 0] = 0
        model.embedding.weight[PAD, 0] = -1000
        model.decoder_norm.bias[0] = 10
    own = [list(ranked[0].ids) for ranked in translate_ids(model, sources, beam=1)]
    assert ways.generated(ways.m2m100_with_weights_of(model), 1)(sources) == own


@pytest.mark.parametrize("encoding", ["rotary", "t5"])
def test_positions_in_attention_have_no_row_of_transformers(encoding):
    rows, missing = serving.rows_of(random_model(encoding), [1])
    assert {row.way for row in rows} == ways.WAYS.keys() - {"transformers, generate"}
    assert "only positions that are added to embeddings" in missing


@pytest.mark.slow
def test_the_script_runs_to_the_end_and_every_greedy_output_is_identical(
    corpus, run_script, capsys, monkeypatch
):
    """Its first row in a process that imports torch, as all of them, the others in this one."""
    start, measured = subprocess.run, []

    def run(command, **options):
        is_row = command[1].endswith("serving_ways.py")
        measured.extend([command] if is_row else [])
        if not is_row or len(measured) == 1:
            return start(command, **options)
        monkeypatch.setattr(sys, "argv", command[1:])
        ways.main()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    words = ["--smoke", "--data", str(corpus), "--beam", "2", "--threads", "1"]
    results = run_script(serving, *words)
    assert [(row["name"], row["beam"]) for row in results["rows"]] == [
        (way, beam) for beam in (1, 2) for way in ways.WAYS
    ]
    assert all(row["identical"] == 6 for row in results["rows"] if row["beam"] == 1)
    assert all(row["tokens_per_s"] > 0 for row in results["rows"])
    assert {"commit", "command", "versions", "machine", "duration_s"} <= results.keys()
    printed = capsys.readouterr().out
    assert "| identical outputs |" in printed
    assert "linear maps at bare speed" in printed
