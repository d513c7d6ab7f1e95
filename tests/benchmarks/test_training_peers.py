"""The peers of the training benchmark train the same shape on the same tokens.

These fail if a way counts other target tokens than its batches have, if Marian has another number
of weights than ropewalk's model, if its loss is computed at padding, or if the script no longer
runs to the end.
"""

import pytest
from scripts import load_scripts

from ropewalk.lab.data.batches import EncodedSplit
from ropewalk.lab.tokens import EOS, PAD
from ropewalk.model import TransformerShape

pytest.importorskip("transformers")
peers, ways = load_scripts("benchmarks", "training_peers", "training_ways")

SHAPE = TransformerShape(20, 32, 4, 48, encoder_layers=2, decoder_layers=2, dropout=0.1)
SPLIT = EncodedSplit([[4, 5, 6], [7, 8, 9, 10, 11], [12]], [[13, 14], [15, 16, 17, 18], [19, 4, 5]])
ALL_TOKENS = sum(len(target) + 1 for target in SPLIT.target)


def test_marian_has_the_weights_of_ropewalks_model():
    ours = ways.Ropewalk(SHAPE, SPLIT, "float32", 64).trainer.model
    theirs = ways.marian(SHAPE)
    sizes = [sum(p.numel() for p in m.parameters() if p.requires_grad) for m in (ours, theirs)]
    # Ours is pre-norm: two norms more, at the ends of the stacks.
    assert sizes[0] - sizes[1] == 2 * 2 * SHAPE.width


@pytest.mark.parametrize("way", [ways.Ropewalk, ways.BareMarian])
def test_a_step_counts_the_real_tokens_of_its_batch(way):
    tokens, seconds = way(SHAPE, SPLIT, "float32", 64).train(0.0)
    assert tokens == ALL_TOKENS
    assert seconds > 0


def test_the_padder_leaves_padding_out_of_the_loss():
    rows = [{"input_ids": [4, EOS], "attention_mask": [1, 1], "labels": [5, 6, EOS]}]
    rows.append({"input_ids": [4, 7, EOS], "attention_mask": [1, 1, 1], "labels": [EOS]})
    made = ways._Padder().pad(rows)
    assert made["input_ids"].tolist() == [[4, EOS, PAD], [4, 7, EOS]]
    assert made["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert made["labels"].tolist() == [[5, 6, EOS], [EOS, ways.IGNORED, ways.IGNORED]]


@pytest.mark.slow
def test_the_trainer_counts_the_tokens_of_its_timed_steps():
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    way = ways.TransformersTrainer(SHAPE, SPLIT, "float32", 64, sampling="random")
    assert way.sentences == len(SPLIT)
    tokens, seconds = way.train(0.0)
    assert tokens == ALL_TOKENS  # of the second step; the first is not timed
    assert seconds > 0


@pytest.mark.slow
def test_the_script_runs_to_the_end_and_writes_its_numbers(corpus, run_script, capsys):
    rows = run_script(peers, "--smoke", "--data", str(corpus))["models"]["smoke"]["rows"]
    assert {row["name"] for row in rows} == {name for name in ways.WAYS if not peers.missing(name)}
    assert all(row["ratio"] > 0 for row in rows)
    assert "× Trainer" in capsys.readouterr().out
