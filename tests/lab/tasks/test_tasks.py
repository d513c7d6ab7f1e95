"""Every task from its data to its results, with models of a few hundred parameters.

These fail if a task cannot be trained, resumed, scored or reported; if what is resumed differs from
what was not interrupted; if encodings, seeds or sittings meet other data than they should; if a
length that an encoding refuses costs more than its own score; or if translation gives other numbers
than it did before there were other tasks.
"""

import io
import json
import os
import re

import pytest
import torch
from rich.console import Console
from torch.nn.functional import cross_entropy

from ropewalk.encodings import REGISTRY
from ropewalk.files import read_json, write_json
from ropewalk.lab import compare as comparison
from ropewalk.lab.batches import EncodedSplit
from ropewalk.lab.cells import Cell
from ropewalk.lab.config import make_config
from ropewalk.lab.data.sequences import TASKS as SEQUENCES
from ropewalk.lab.decoding.translator import Translator
from ropewalk.lab.models import build_model
from ropewalk.lab.presets import TASKS
from ropewalk.lab.report.findings import findings
from ropewalk.lab.report.publish import publish
from ropewalk.lab.report.terminal import print_summary, print_table
from ropewalk.lab.run import cells_of, prepare, train_one
from ropewalk.lab.tasks import open_task
from ropewalk.lab.tasks.language import LanguageBatch, pad_examples
from ropewalk.lab.tasks.translation import Translation
from ropewalk.lab.tokens import EOS, PAD
from ropewalk.lab.train import Record, Trainer
from ropewalk.lab.worker import run_cell

TEXT = ("masked-lm", "causal-lm")
TINY = {
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "layers": 1,
    "train_length": 4,
    "length_multiples": (1, 3),
    "test_examples": 6,
    "batch_tokens": 64,
    "validations": 2,
    "keep": 2,
    "precision": "float32",
    "device": "cpu",
    "seeds": (1, 2),
}


def config_of(task, **fields):
    more = {"examples": 40}
    if task in TEXT:
        more = {"examples": 3, "vocabulary": 120, "train_length": 8}
    if task == "masked-lm":
        more["length_multiples"] = (1,)
    return make_config(settings={"task": task, **TINY, **more, **fields})


@pytest.fixture
def compare(monkeypatch):
    """Give `compare` with its cells trained one after another in this process."""

    def run_cells(config, run, jobs, watch):
        for cell in cells_of(config):
            run_cell(run, cell.encoding, cell.seed, lambda event: None)
        return 1

    monkeypatch.setattr(comparison, "run_cells", run_cells)
    return comparison.compare


def printed(show, *arguments):
    console = Console(file=io.StringIO(), width=200)
    show(console, *arguments)
    return console.file.getvalue()


@pytest.mark.parametrize("task", [task for task in TASKS if task != "translation"])
def test_every_task_from_data_to_report(compare, tmp_path, task):
    config = config_of(task, test_examples=12)
    results = compare(config, tmp_path / "run", command=["ropewalk", "compare"])
    assert results == read_json(tmp_path / "run" / "results.json")
    splits = ["x1"] if task == "masked-lm" else ["x1", "x3"]
    assert results["splits"] == splits
    assert (results["task"], results["config"]["task"]) == (task, task)
    assert "beam" not in results["config"]
    keys = [metric["key"] for metric in results["metrics"]]
    for row in results["encodings"]:
        for cell in row["cells"]:
            assert cell["status"] == "finished"
            for split in splits:
                scores = cell["scores"][split]
                assert {*keys, "statistics", "decode_seconds"} <= scores.keys()
                lengths = {len(column) for column in scores["statistics"].values()}
                assert len(lengths) == 1
        assert row["summary"]["x1"][keys[0]]["mean"] is not None
    assert results["encodings"][1]["summary"]["x1"]["versus_first"]["p"] > 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert results["about"] in page
    ids = re.findall(r' id="([^"]+)"', page.partition("<script>")[0])
    assert len(set(ids)) == len(ids)  # else a section takes the place of the script's data
    assert ">BLEU" not in page
    table = printed(print_table, results)
    assert all(text in table for text in ("sinusoidal", "rotary", *splits))
    publish(tmp_path / "run", tmp_path / "out")
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"README.md", "results.json", "score.png", "loss.png", "attention.png"} <= files
    assert ("score-by-length.png" in files) == (len(splits) > 1)


def test_scores_are_those_of_the_items(compare, tmp_path):
    """Perplexity, loss and exact match again, from what results keep of each item."""
    results = compare(config_of("causal-lm", seeds=1), tmp_path / "text")
    for row in results["encodings"]:
        scored = set()
        for split, length in (("x1", 8), ("x3", 24)):
            scores = row["cells"][0]["scores"][split]
            nll, tokens = scores["statistics"]["nll"], scores["statistics"]["tokens"]
            assert set(tokens) == {length}
            assert scores["loss"] == pytest.approx(sum(nll) / sum(tokens), abs=1e-4)
            assert scores["perplexity"] == pytest.approx(2.718281828 ** scores["loss"], rel=1e-3)
            scored.add(sum(tokens))
        assert len(scored) == 1  # windows of every length cover the same tokens
    results = compare(config_of("copy", seeds=1), tmp_path / "copy")
    folder = Cell("rotary", 1).folder(tmp_path / "copy")
    task = open_task(config_of("copy"), tmp_path / "copy")
    found, wanted = read_json(folder / "x3.json")["predictions"], task.data["x3"].target
    exact = [ids == target for ids, target in zip(found, wanted, strict=True)]
    scores = results["encodings"][1]["cells"][0]["scores"]["x3"]
    assert scores["exact"] == pytest.approx(100 * sum(exact) / len(exact))
    assert scores["statistics"]["exact"] == [int(right) for right in exact]


def trainer(task, folder):
    return Trainer(task, "rotary", 1, folder)


@pytest.mark.parametrize("name", ["masked-lm", "causal-lm", "copy"])
def test_a_resumed_training_is_bit_for_bit_the_uninterrupted_one(tmp_path, name):
    task = prepare(config_of(name, dropout=0.1, epochs=2), tmp_path)
    whole = trainer(task, tmp_path / "whole")
    record = whole.run()
    half = record.steps // 2

    def stop(record, loss):
        if record.step == half:
            os.kill(os.getpid(), 2)  # Ctrl-C

    with pytest.raises(KeyboardInterrupt):
        trainer(task, tmp_path / "parts").run(stop)
    torch.rand(17)  # whatever happens between sittings
    again = open_task(task.config, tmp_path)
    second = trainer(again, tmp_path / "parts")
    assert second.record.step == half
    resumed = second.run()
    assert [p["loss"] for p in resumed.training] == [p["loss"] for p in record.training]
    assert [p["loss"] for p in resumed.validation] == [p["loss"] for p in record.validation]
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_what_is_finished_is_kept_and_more_lengths_are_scored(compare, tmp_path):
    compare(config_of("copy", seeds=1), tmp_path)
    folder = Cell("rotary", 1).folder(tmp_path)
    trained = (folder / "training.json").stat().st_mtime_ns
    x1 = (folder / "x1.json").stat().st_mtime_ns
    compare(config_of("copy", seeds=1), tmp_path)
    assert (folder / "x1.json").stat().st_mtime_ns == x1
    more = compare(config_of("copy", seeds=1, length_multiples=(1, 2, 4)), tmp_path)
    assert more["splits"] == ["x1", "x2", "x4"]
    assert (folder / "training.json").stat().st_mtime_ns == trained
    with pytest.raises(ValueError, match="examples is 40 there and 41 here"):
        prepare(config_of("copy", examples=41), tmp_path)


def test_training_alone_gives_a_model(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "ropewalk.lab.run.run_cells",
        lambda config, run, watch: [
            run_cell(run, cell.encoding, cell.seed, lambda event: None) for cell in cells_of(config)
        ],
    )
    with pytest.raises(ValueError, match="encodings must name one to train one model"):
        train_one(config_of("sort", encodings="none,rotary"), tmp_path, lambda *event: None)
    path = train_one(config_of("sort", encodings="none", seeds=3), tmp_path, lambda *event: None)
    assert path.parent.name == "seed-3"
    assert {p.name for p in (tmp_path / "cells").iterdir()} == {"none"}
    with pytest.raises(ValueError, match="must be a model of translation, got one of sort"):
        Translator.load(path)


def test_few_items_are_scored_and_not_tested(compare, tmp_path):
    """Fails if a difference of a handful of examples is called better, or left without a word."""
    results = compare(config_of("copy", test_examples=9), tmp_path)
    versus = [row["summary"]["x1"]["versus_first"] for row in results["encodings"]]
    assert versus == [None, None]
    assert any("fewer than 10 examples is not tested" in said for said in findings(results))


def test_a_test_text_shorter_than_a_window_is_refused_at_once(tmp_path):
    for name, words in (("train", 300), ("validation", 60), ("test", 3)):
        (tmp_path / f"{name}.txt").write_text("ein Wort " * words + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="windows in the test text, got 32: it has"):
        prepare(config_of("causal-lm", data=str(tmp_path), train_length=32), tmp_path / "run")


def test_loss_at_equal_time_is_never_a_later_one():
    """Fails if a run that ends before another's first validation is held against its last."""
    seen = [{"step": 1, "seconds": 2.0, "loss": 3.0}, {"step": 2, "seconds": 4.0, "loss": 1.0}]
    record = Record(status="finished", validation=seen)
    assert [comparison._loss_at(record, s) for s in (1.9, 2.0, 3.0, 4.0)] == [None, 3.0, 2.0, 1.0]


# What an encoding cannot do


def test_a_length_that_an_encoding_refuses_has_no_result_and_says_why(compare, tmp_path):
    config = config_of("copy", encodings="rotary,learned(max_positions=10)")
    results = compare(config, tmp_path)
    rotary, learned = results["encodings"]
    assert learned["summary"]["x1"]["exact"]["mean"] is not None
    assert "positions must lie in 0..9" in learned["summary"]["x3"]["no_result"]
    assert learned["summary"]["x3"]["versus_first"] is None
    assert rotary["summary"]["x3"]["exact"]["mean"] is not None
    assert learned["cells"][0]["scores"]["x3"].keys() == {"no_result"}
    table = printed(print_table, results)
    assert "no result" in table
    assert "learned(max_positions=10) has no result on x3: positions must lie in 0..9" in table
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "learned(max_positions=10) has no result on x3: positions must lie in 0..9" in page
    publish(tmp_path, tmp_path / "out")
    assert "no result" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    summary = printed(print_summary, [results, results])
    assert summary.count("no result") == 2


def test_a_task_that_ends_before_the_length_has_no_result(compare, tmp_path):
    """Recall has 64 keys and no more."""
    config = config_of("recall", seeds=1, train_length=30, batch_tokens=512)
    results = compare(config, tmp_path)
    assert all(
        "at most 64 pairs" in row["summary"]["x3"]["no_result"] for row in results["encodings"]
    )


def test_a_length_that_the_task_has_not_is_refused_by_its_own_name(tmp_path):
    config = config_of("sort", seeds=1, train_length=200)
    with pytest.raises(ValueError, match="length must be at most 128 numbers for sort, got 200"):
        prepare(config, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_diverged_training_has_no_result_and_no_mean(compare, tmp_path):
    config = config_of("reverse", learning_rate=1e30, clip=1e30, encodings="none,rotary")
    results = compare(config, tmp_path)
    cells = [cell for row in results["encodings"] for cell in row["cells"]]
    assert {cell["status"] for cell in cells} == {"diverged"}
    for row in results["encodings"]:
        assert row["summary"]["x1"]["exact"] == {"mean": None, "values": [None, None]}
        assert row["summary"]["x1"]["no_result"] == "the training diverged"
    assert "diverged after" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"encodings": "rotary(rotary_dim=3)"}, "rotary_dim must be even"),
        ({"encodings": "rotary(cross=True)"}, "cross belongs to an encoder-decoder"),
        ({"attention": "perfomer"}, "did you mean 'performer'"),
        ({"attention": "elu", "encodings": "rotary,alibi"}, "alibi: attention must be softmax"),
        ({"beam": 3}, "task 'copy' has no beam"),
        ({"data": "x", "mask_ratio": 0.3}, "task 'copy' has no data, mask_ratio"),
        ({"task": "cpoy"}, "did you mean 'copy'"),
        ({"length_multiples": (2, 2)}, "length_multiples must differ"),
    ],
)
def test_what_cannot_be_is_refused_before_any_training(fields, said):
    with pytest.raises(ValueError, match=said):
        config_of(**{"task": "copy", "seeds": 1, **fields})


def test_a_preset_of_translation_is_refused_for_other_tasks():
    with pytest.raises(ValueError, match="preset must be default or quick for task 'sort'"):
        make_config("multi30k-cpu", settings={"task": "sort"})
    for field in (
        "train_length",
        "length_multiples",
        "examples",
        "test_examples",
        "layers",
        "mask_ratio",
    ):
        with pytest.raises(ValueError, match=f"task 'translation' has no {field}"):
            make_config(settings={field: 1})


def test_a_config_comes_back_from_what_a_run_keeps():
    for task in TASKS:
        config = make_config("quick", settings={"task": task})
        again = type(config).model_validate(json.loads(json.dumps(config.facts())))
        assert again.facts() == config.facts()


# What the models meet


@pytest.fixture
def masked(tmp_path):
    task = prepare(config_of("masked-lm", train_length=40, examples=6), tmp_path)
    return task, task.batch(task.plan(1, 0)[0], 7), task.data["train"]


def test_masking_hides_a_share_and_asks_for_nothing_else(masked):
    task, _, stream = masked
    rows = torch.arange(20) * 40
    batch = task.windows("train", rows, 40, 3)
    truth = stream[rows[:, None] + torch.arange(40)]
    asked = batch.targets != PAD
    assert torch.equal(batch.targets[asked], truth[asked])
    assert torch.equal(batch.tokens[~asked], truth[~asked])
    assert asked.any(1).all()
    assert 0.10 < asked.double().mean() < 0.22
    hidden = batch.tokens[asked] == task.mask
    assert 0.65 < hidden.double().mean() < 0.95
    assert (batch.tokens[asked] == truth[asked]).any()  # some stay, and are asked for all the same
    assert batch.tokens.max() <= task.mask < task.vocabulary


def test_masks_are_drawn_anew_for_each_step_and_alike_for_each_encoding(masked):
    task, batch, _ = masked
    rows = task.plan(1, 0)[0]
    again, other = task.batch(rows, 7), task.batch(rows, 8)
    assert torch.equal(batch.tokens, again.tokens)
    assert not torch.equal(batch.targets, other.targets)
    first, second = (next(iter(task.validation_batches())) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens)


def test_text_is_read_whole_and_in_order(tmp_path):
    task = prepare(config_of("causal-lm"), tmp_path)
    stream = task.data["train"]
    seen = torch.cat([task.batch(rows, 0).targets.flatten() for rows in task.plan(1, 0)])
    assert len(stream) - 3 * 8 <= len(seen) <= len(stream)
    batch = task.batch([5, 30], 0)
    assert torch.equal(batch.tokens, torch.stack([stream[5:13], stream[30:38]]))
    assert torch.equal(batch.targets, torch.stack([stream[6:14], stream[31:39]]))
    starts = [sorted(row for rows in task.plan(1, epoch) for row in rows) for epoch in range(4)]
    assert len({len(s) for s in starts}) == 1
    assert len({s[0] for s in starts}) > 1  # windows begin elsewhere in each epoch
    assert task.plan(1, 0) == task.plan(1, 0) != task.plan(2, 0)


def test_only_answers_are_predicted():
    batch = pad_examples([([1, 5, 6], [7, 8, EOS]), ([1, 9], [4, EOS])])
    assert batch.tokens.tolist() == [[1, 5, 6, 7, 8], [1, 9, 4, PAD, PAD]]
    assert batch.targets.tolist() == [[PAD, PAD, 7, 8, EOS], [PAD, 4, EOS, PAD, PAD]]
    assert batch.target_tokens == 5


def test_the_loss_is_the_cross_entropy_of_what_is_asked(tmp_path):
    task = prepare(config_of("addition"), tmp_path)
    model = build_model(task.config, "rotary", 1, task.vocabulary)
    batch = task.batch(task.plan(1, 0)[0], 0)
    wanted = cross_entropy(
        model.logits(model(batch.tokens)).flatten(0, 1), batch.targets.flatten(), ignore_index=PAD
    )
    assert task.loss(model, batch).item() == pytest.approx(wanted.item(), rel=1e-5)
    losses = [task.loss(model, b).detach() * b.target_tokens for b in task.validation_batches()]
    tokens = sum(b.target_tokens for b in task.validation_batches())
    assert task.validation_loss(model, "float32") == pytest.approx(float(sum(losses)) / tokens)


@pytest.mark.parametrize("name", SEQUENCES)
def test_generated_splits_have_their_lengths_and_share_no_prompt(tmp_path, name):
    task = prepare(config_of(name), tmp_path)
    assert len(task.data["train"]) == 40
    assert {len(task.data[split]) for split in ("x1", "x3")} == {6}
    prompts = [{tuple(p) for p in split.source} for split in task.data.values()]
    assert not prompts[0] & (prompts[1] | prompts[2] | prompts[3])
    longest = [max(map(len, task.data[split].source)) for split in ("train", "x1", "x3")]
    assert longest[0] <= longest[1] < longest[2]
    rows = sorted(row for batch in task.plan(1, 0) for row in batch)
    assert rows == list(range(40))


def test_every_encoding_of_the_registry_serves_a_decoder(tmp_path):
    """Each of those whose defaults allow a causal stack learns something in a few steps."""
    task = prepare(config_of("copy", epochs=2, learning_rate=0.02), tmp_path)
    for encoding in REGISTRY:
        record = Trainer(task, encoding, 1, tmp_path / encoding).run()
        assert record.validation[-1]["loss"] < record.training[0]["loss"], encoding


# Translation is what it was

# Losses of the program before there were other tasks: same splits, config and seed.
GOLDEN = {
    "rotary": (
        [
            *(3.6631, 3.6643, 3.7951, 3.5054, 3.1301, 3.4862, 3.1782),
            *(3.1037, 3.3462, 3.2743, 3.3599, 3.1913, 3.012, 3.1665),
        ],
        [3.43729, 3.26541, 3.22347],
    ),
    "learned": (
        [
            *(3.6704, 3.7136, 3.7644, 3.5667, 3.0823, 3.517, 3.1757),
            *(3.0932, 3.3388, 3.3079, 3.3983, 3.2172, 2.9725, 3.1855),
        ],
        [3.45317, 3.29526, 3.25604],
    ),
}


@pytest.mark.parametrize("encoding", GOLDEN)
def test_translation_gives_the_losses_that_it_gave(tmp_path, encoding):
    fields = {name: TINY[name] for name in ("width", "heads", "feed_forward", "batch_tokens")}
    fields |= {"encoder_layers": 1, "decoder_layers": 1, "dropout": 0.1, "epochs": 2}
    fields |= {"precision": "float32", "device": "cpu", "validations": 3, "keep": 2}
    generator = torch.Generator().manual_seed(0)

    def rows(count):
        lengths = torch.randint(2, 9, (count,), generator=generator).tolist()
        return [torch.randint(4, 20, (n,), generator=generator).tolist() for n in lengths]

    task = Translation(make_config(settings={**fields, "encodings": encoding}), tmp_path)
    task.data = {
        "train": EncodedSplit(rows(60), rows(60)),
        "validation": EncodedSplit(rows(10), rows(10)),
    }
    task.vocabulary = 20
    record = Trainer(task, encoding, 1, tmp_path).run()
    training, validation = GOLDEN[encoding]
    assert [p["loss"] for p in record.training] == pytest.approx(training, abs=2e-3)
    assert [p["loss"] for p in record.validation] == pytest.approx(validation, abs=2e-3)


def test_a_checkpoint_of_before_is_gone_on_with(tmp_path):
    """What was written without the later fields is that of a translation with softmax attention."""
    task = Translation(make_config(settings={"device": "cpu"}), tmp_path)
    held = {name: value for name, value in task.config.training().items() if name != "task"}
    del held["attention"]
    task.vocabulary = 30
    task.data = {name: EncodedSplit([[5, 6]], [[7]]) for name in ("train", "validation")}
    first = Trainer(task, "rotary", 1, tmp_path / "cell")
    first.facts["config"] = held
    first._save()
    assert Trainer(task, "rotary", 1, tmp_path / "cell").record.step == 0
    write_json(tmp_path / "facts.json", held)
    assert "attention" not in read_json(tmp_path / "facts.json")


def test_a_batch_goes_to_a_device_whole():
    batch = LanguageBatch(torch.tensor([[1]]), torch.tensor([[2]])).to(torch.device("meta"))
    assert batch.tokens.is_meta
    assert batch.targets.is_meta
