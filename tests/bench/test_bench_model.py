"""`ropewalk bench --model` times one model before and after `patch`, and moves a passage far away.

These fail if an interval is not that of the median, if untimed work is timed, if views share what
`patch` changes or do not share weights, if a rotation that depends on absolute positions looks
relative, if a claim is made that its interval does not bear, or if a mistake gives more than one
line. No test asserts how long anything takes. Where logits move, `patch` has a stand-in of known
error.
"""

import copy
import io
import itertools
import json
import math
import sys
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from rich.console import Console
from tiny_models import FEW, GPTJ, tiny_model

from ropewalk import ModelSpec, machine
from ropewalk.bench import model_bench
from ropewalk.bench.bench_options import WORK, make_model_plan
from ropewalk.bench.bench_report import findings, print_model_notes, print_model_part
from ropewalk.bench.clock import Ratio, Step, interval_rank, time_steps
from ropewalk.bench.logit_movement import (
    ENDS,
    PASSAGE,
    compare,
    logit_movement,
    not_relative,
    passage,
)
from ropewalk.bench.model_bench import AFTER, BEFORE, WATCHED, WITHOUT, Views, measure_model
from ropewalk.bench.rotation_share import Stopwatch, WithoutRotation
from ropewalk.tools import live_model as model_parts
from ropewalk.tools import load_model, model_files
from ropewalk.tools.model_files import load, read_source

pytest.importorskip("transformers")

CPU = torch.device("cpu")
FIELDS = {**FEW, "model_type": "llama", "num_hidden_layers": 2, "max_position_embeddings": 4096}


def swap(model, error=0.0):
    """Do as `patch`: frequencies of a model in float64, here with angles off by a slope."""
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            module.forward = tables(module, error)


def tables(module, error):
    frequencies = module.inv_freq.double()

    def forward(x, position_ids):
        positions = position_ids.double()
        angles = (positions + error * positions**2)[..., None] * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    return forward


def folder_of(path, fields):
    (path / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("llama"), FIELDS)


@pytest.fixture(scope="module")
def measured(config):
    heard = []
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(model_bench, "MOST_DECODED", 2)
        plan = make_model_plan(config, rounds=6, device="cpu", tokens=16, dtype="float32,bfloat16")
        results = measure_model(plan, ["ropewalk", "bench"], lambda facts: heard.append(facts))
    heard = [facts for facts in heard if "now" not in facts]
    assert ["speed" in facts for facts in heard] == [False, True, True]
    return results


@pytest.mark.parametrize(
    ("count", "rank"),  # tables of the sign test: 20 values, the 6th and the 15th
    [(1, None), (5, None), (6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (20, 5), (100, 39)],
)
def test_the_interval_of_a_median_is_that_of_the_sign_test(count, rank):
    assert interval_rank(count) == rank


def test_ratios_are_taken_within_rounds():
    below = [1.0, 10.0, 2.0, 5.0, 1.0, 4.0]
    found = Ratio.of([2 * x for x in below], below)
    assert found == Ratio(2.0, 2.0, 2.0, 6)
    wide = Ratio.of([1, 2, 3, 4, 5, 6, 7, 8, 9], [10] * 9)
    assert (wide.low, wide.median, wide.high) == (0.2, 0.5, 0.8)
    assert Ratio.of([1.0] * 5, [1.0] * 5).low is None


def test_only_a_run_is_timed_and_never_its_preparation(monkeypatch):
    monkeypatch.setattr("ropewalk.bench.clock.gc", Mock())  # there is nothing to collect
    now = [0.0]
    around = []

    @contextmanager
    def context():
        around.append("in")
        yield
        around.append("out")

    def later(seconds):
        now[0] += seconds
        return seconds

    steps = {
        "a": Step(lambda given: later(given), prepare=lambda: later(100) / 100, around=context),
        "b": Step(lambda _: later(2.0)),
    }
    samples = time_steps(steps, CPU, None, 0.0, clock=lambda: now[0])
    assert samples == {"a": [1.0] * 6, "b": [2.0] * 6}
    assert around == ["in", "out"] * 7  # one run is not counted
    assert len(time_steps(steps, CPU, 3, 0.0, clock=lambda: now[0])["a"]) == 3
    assert len(time_steps(steps, CPU, None, 1030.0, clock=lambda: now[0])["b"]) == 10


@pytest.mark.slow
def test_every_work_has_its_rates_ratios_and_shares_next_to_the_conditions(measured):
    assert {"commit", "command", "versions", "started", "duration_s"} <= measured.keys()
    assert {"torch", "transformers"} <= measured["versions"].keys()
    machine = {"processor", "threads", "device", "load_before", "load_after"}
    assert machine <= measured["machine"].keys()
    assert [facts["dtype"] for facts in measured["models"]] == ["float32", "bfloat16"]
    for facts in measured["models"]:
        assert facts["model"] == "LlamaForCausalLM"
        assert facts["weights"] == "random"
        assert facts["attention"]
        assert facts["patch"]["tables"] == ["model.rotary_emb"]
        layers = ["model.layers.0.self_attn", "model.layers.1.self_attn"]
        assert (facts["patch"]["taken"], facts["patch"]["left"]) == (layers, [])
        assert "exact tables: model.rotary_emb" in facts["patch"]["says"]
        assert [work["work"] for work in facts["speed"]] == list(WORK)
        assert facts["speed"][0]["last_logits_only"]
        for work in facts["speed"]:
            assert work.get("tokens", work.get("context")) == 16
            for name in (BEFORE, AFTER, WITHOUT, *WATCHED.values()):
                assert len(work["seconds"][name]) == 6
                assert work["tokens_per_second"][name] > 0
            fast = work["times_as_fast"]
            assert 0 < fast["low"] <= fast["median"] <= fast["high"]
            assert set(work["rotation"]) == {BEFORE, AFTER}
            for part in work["rotation"].values():
                assert 0 < part["low"] <= part["median"] <= part["high"] < 1
            assert 0 < work["left_out"]["low"] <= work["left_out"]["high"]
    far = measured["models"][0]["logits"]["rows"][-1]
    assert far["after"]["largest"] < far["before"]["largest"]


def printed(facts, show=print_model_part):
    shown = io.StringIO()
    show(Console(file=shown, soft_wrap=True), facts)
    return shown.getvalue()


@pytest.mark.slow
def test_results_come_back_from_json_and_can_be_printed(measured):
    read = json.loads(json.dumps(measured))
    assert read == measured
    text = "".join(map(printed, (read, *read["models"])))
    assert f"{measured['duration_s']:.0f} s." in printed(read, print_model_notes)
    for words in ("random weights", "exact tables: model.rotary_emb", "131,071 *"):
        assert words in text
    assert "…" not in text
    for facts in read["models"]:
        for sentence in findings(facts):
            assert sentence in text


@pytest.fixture
def facts(measured):
    """The facts of one dtype, to be changed."""
    return copy.deepcopy(measured["models"][0])


def row_of(text, table, name):
    """The cells of the row with this name in the table with this title."""
    rows = text.partition(table)[2].splitlines()
    return next(line for line in rows if line.split()[:1] == [name]).split()[1:]


def test_the_rate_after_patch_agrees_with_the_ratio_next_to_it(facts):
    work = facts["speed"][0]
    work["tokens_per_second"] |= {BEFORE: 202.0, AFTER: 181.0}  # unpaired medians
    work["times_as_fast"] = found(1.05, 1.073, 1.1)
    cells = row_of(printed(facts), "Tokens per second", "prefill")
    assert cells == ["16", "202", "217", "1.073", "(1.050", "to", "1.100)", "9"]


def test_different_token_counts_are_named_next_to_the_shares(facts):
    assert "Token counts differ" not in printed(facts)
    facts["speed"][0]["tokens"] = 512
    assert "differ (prefill 512, decode 16, training 16)" in printed(facts)
    assert "--tokens 16 makes them the same" in printed(facts)


def test_nothing_is_reported_before_a_model_that_patch_refuses(config, monkeypatch):
    def refuse(model, **given):
        raise ValueError("model must have a rope")

    heard = []
    monkeypatch.setattr(sys.modules["ropewalk.tools.patch"], "patch", refuse)
    with pytest.raises(
        ValueError, match="--model must be one that patch can change: model must have a rope"
    ):
        measure_model(make_model_plan(config, device="cpu", tokens=8), (), heard.append)
    assert all("now" in facts for facts in heard)


def test_views_share_weights_and_nothing_that_patch_changes():
    model = tiny_model("llama")
    view = model_bench.view_of(model)
    assert all(a is b for a, b in zip(model.parameters(), view.parameters(), strict=True))
    swap(view, error=0.1)
    assert "forward" not in vars(model.model.rotary_emb)
    assert view.model.rotary_emb.inv_freq is not model.model.rotary_emb.inv_freq
    ids = torch.arange(8)[None]
    with torch.no_grad():
        assert not torch.equal(model(ids).logits, view(ids).logits)


@pytest.mark.parametrize("model_type", ["llama", "gpt_neox", "gptj", "gemma3_text", "cohere"])
def test_a_model_without_rotation_does_not_feel_positions(model_type):
    model = tiny_model(model_type, **(GPTJ if model_type == "gptj" else {}))
    ids = torch.arange(3, 11)[None]
    with torch.no_grad():
        was = model(ids).logits
        without = WithoutRotation(model)
        assert without.why_not(ids) is None
        assert without.calls >= 2 * 4  # two passes, four layers
        with without.apart():
            unrotated = model(ids).logits
        assert torch.equal(model(ids).logits, was)
    assert not torch.equal(unrotated, was)


def test_a_rotation_that_cannot_be_left_out_is_reported(monkeypatch):
    model, ids = tiny_model("llama"), torch.arange(8)[None]
    with monkeypatch.context() as patching:
        patching.setattr(model_parts, "ROTATES", SimpleNamespace(search=lambda name: None))
        views = Views.of(model, swap, ids)
    assert "no function that rotates was found" in views.why_not
    samples = {BEFORE: [1.0] * 6, AFTER: [1.0] * 6}
    facts = model_bench.speeds(samples, 1, {}, views.why_not)
    assert facts["rotation"] == {}
    assert facts["left_out"] is None
    assert facts["why_not_left_out"] == views.why_not


def slow(now, by):
    """A function that rotates nothing and takes some time, forward and backward."""

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k):
            now[0] += by
            return q.clone(), k.clone()

        @staticmethod
        def backward(ctx, dq, dk):
            now[0] += 3 * by
            return dq.clone(), dk.clone()

    return lambda q, k, cos, sin, unsqueeze_dim=1: Slow.apply(q, k)


def test_a_gradient_that_begins_and_does_not_end_is_no_time():
    watch = Stopwatch(tiny_model("llama"))
    with watch.running():
        watch._begin()
    assert math.isnan(watch.seconds[0])


def test_time_inside_a_rotation_is_counted_forward_and_backward(monkeypatch):
    model, ids, now = tiny_model("llama"), torch.arange(8)[None], [0.0]
    modeling = sys.modules[type(model).__module__]
    rotation = slow(now, by=1.0)
    monkeypatch.setattr(modeling, "apply_rotary_pos_emb", rotation)
    watch = Stopwatch(model, clock=lambda: now[0])
    with watch.running(), torch.no_grad():
        model(ids)
    with watch.running():
        now[0] += 100.0  # outside
        model(ids, labels=ids).loss.backward()
    assert watch.seconds == [4.0, 16.0]  # four layers
    assert watch.rotations == 8
    assert modeling.apply_rotary_pos_emb is rotation
    assert "forward" not in vars(model.model.rotary_emb)


def moved(model, error=0.0, promised=None):
    after = model_bench.view_of(model)
    swap(after, error)
    tokens = torch.arange(PASSAGE)[None] % 60
    spec = ModelSpec.from_config(model.config.to_dict())
    return logit_movement(model, after, tokens, spec, promised)


def wide_awake(model):
    """The model with larger weights, so that attention, and so its angles, matter."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.0 if parameter.ndim < 2 else 8.0)
    return model


def test_exact_angles_move_logits_less_and_faulty_ones_more():
    model = wide_awake(tiny_model("llama"))
    right, wrong = moved(model, promised=32_768), moved(model, error=1e-7)
    assert right["near"]["largest"] < right["rounding"] * right["spread"]
    assert [row["last"] + 1 for row in right["rows"]] == list(ENDS)
    assert [row["first"] for row in right["rows"]] == [end - PASSAGE for end in ENDS]
    assert [row["beyond_config"] for row in right["rows"]] == [False, False, True]
    far, faulty = right["rows"][-1], wrong["rows"][-1]
    assert far["after"]["largest"] < far["before"]["largest"] / 4
    assert faulty["after"]["largest"] > 10 * far["before"]["largest"]
    assert faulty["after"]["kl"] > far["before"]["kl"]
    assert far["kl_after"]["smaller"] > 0.8 * PASSAGE
    assert faulty["kl_after"]["larger"] > 0.8 * PASSAGE
    assert far["between"]["largest"] == pytest.approx(far["before"]["largest"], rel=0.5)


def test_logits_are_not_compared_where_they_may_differ_by_design():
    rule = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    model = tiny_model("llama", rope_parameters=rule, max_position_embeddings=4096)
    facts = moved(model)
    assert "depends on the length" in facts["not_compared"]
    for row in facts["rows"]:
        assert row["before"] is row["after"] is None
        assert row["between"]["largest"] >= 0
    assert not_relative(ModelSpec.from_config(FIELDS)) is None


def test_positions_that_a_model_lacks_are_reported():
    model = tiny_model("gptj", **{**GPTJ, "n_positions": 8192})
    facts = moved(model, promised=8192)
    assert "between" in facts["rows"][0]
    assert all("not_measured" in row for row in facts["rows"][1:])


def test_a_comparison_of_logits_is_what_its_words_say():
    first = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    second = torch.tensor([[2.0, 0.0], [1.5, 1.0]])
    found = compare(first, second)
    assert found["largest"] == 1.5
    assert found["top_changed"] == 1
    p = 1 / (1 + math.e)
    q = 1 / (1 + math.exp(-0.5))
    expected = (p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))) / 2
    assert found["kl"] == pytest.approx(expected, rel=1e-5)
    assert compare(first, first) == {"largest": 0.0, "kl": 0.0, "top_changed": 0}


def found(low, middle, high):
    return {"median": middle, "low": low, "high": high, "rounds": 9}


def claims(facts, times_as_fast=(0.9, 1.0, 1.1), rotation=None, left_out=(0.9, 1.0, 1.1)):
    work = facts["speed"][0]
    work["times_as_fast"], work["left_out"] = found(*times_as_fast), found(*left_out)
    work["rotation"] = {name: found(*each) for name, each in (rotation or {}).items()}
    facts["speed"] = [work]
    return " ".join(findings(facts))


def test_a_sentence_claims_no_more_than_its_interval_bears(facts):
    text = claims(facts, (1.05, 1.1, 1.2))
    assert "1.100 times as fast after patch (95 % interval 1.050 to 1.200)" in text
    assert "slower after patch" in claims(facts, (0.8, 0.9, 0.95))
    assert "no difference shown" in claims(facts, (0.9, 1.1, 1.2))
    assert "no interval" in claims(facts, (None, 1.1, None))
    parts = {BEFORE: (0.01, 0.04, 0.06), AFTER: (0.001, 0.01, 0.1)}
    text = claims(facts, rotation=parts)
    assert "4.0 % (1.0 to 6.0) of a step before patch and 1.0 % (0.1 to 10) of a step" in text
    assert "if it took no time, a step would be 1.010 to 1.064 times as fast as before" in text
    few = claims(facts, rotation={BEFORE: (None, 0.152, None)})
    assert "rotation takes 15 % of a step before patch." in few
    text = claims(facts, left_out=(1.01, 1.04, 1.07))
    assert "without rotation 1.040 times as fast as before patch (1.010 to 1.070)" in text
    text = claims(facts, left_out=(0.9, 1.04, 1.07))
    assert "without rotation no difference shown (0.900 to 1.070 times as fast)" in text


@pytest.mark.parametrize(
    ("smaller", "larger", "said"),  # 64 places: a sign test needs 41 to 23
    [
        (60, 4, "distribution moves less after patch (KL divergence smaller"),
        (41, 23, "distribution moves less after patch"),
        (40, 24, "No difference in the next token's distribution shown"),
        (23, 41, "distribution moves more after patch"),
        (3, 2, "shown (KL divergence smaller after patch in 3 of 64 places, larger in 2)"),
        (0, 0, "No difference in the next token's distribution shown"),
    ],
)
def test_logits_move_less_if_most_places_do(smaller, larger, said, facts):
    row = facts["logits"]["rows"][0]
    row["before"]["largest"] = row["after"]["largest"] = 0.05  # rounding decides the maximum
    row["kl_after"] = {"smaller": smaller, "larger": larger}
    facts["logits"]["rows"] = [row]
    assert said in " ".join(findings(facts))


def test_findings_name_a_patched_model_that_computes_something_else(facts):
    assert "two different models" not in " ".join(findings(facts))
    facts["logits"]["near"]["largest"] = facts["logits"]["spread"]
    assert "two different models" in " ".join(findings(facts))
    facts["patch"]["taken"] = []
    assert findings(facts)[0].startswith("patch replaced no rotation;")
    facts["patch"]["tables"] = []
    assert findings(facts)[0].startswith("patch replaced no tables;")


def test_weights_are_loaded_in_a_dtype_and_frequencies_stay_as_they_are(tmp_path):
    tiny_model("llama").save_pretrained(tmp_path)
    source = read_source(tmp_path)
    assert source.has_weights
    model = load(source, torch.bfloat16, CPU)
    assert model.lm_head.weight.dtype == torch.bfloat16
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    assert passage(source)[1] == "random tokens"
    with pytest.raises(ValueError, match=r"dtype must be torch.float32 with meta=True, got"):
        load_model(tmp_path, meta=True, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("seconds", "lengths"), [(0.0, (32, 32, 32)), (1e9, (512, 512, 512)), (1.5, (128, 512, 32))]
)
def test_tokens_are_as_many_as_fit_into_the_seconds(seconds, lengths, config, monkeypatch):
    clock = itertools.count(step=0.01).__next__  # 32 tokens take this long
    monkeypatch.setattr(model_bench, "time", SimpleNamespace(perf_counter=clock))
    views = SimpleNamespace(before=lambda **given: None)
    plan = make_model_plan(config, device="cpu", seconds=seconds)
    tokens = torch.zeros(1, 512, dtype=torch.long)
    found = [model_bench._length(work, views, tokens, plan) for work in WORK]
    assert tuple(found) == lengths
    assert model_bench._length("decode", views, tokens, replace(plan, tokens=7)) == 7


def test_a_passage_is_english_if_the_model_brings_its_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    tiny_model("llama").save_pretrained(tmp_path)
    words = tokenizers.models.WordLevel({"rope": 3, "[UNK]": 4}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ids, kind = passage(read_source(tmp_path))
    assert kind == "English text"
    assert ids.shape == (1, PASSAGE)
    assert set(ids.flatten().tolist()) == {3, 4}
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert passage(read_source(tmp_path))[1] == "random tokens"


@pytest.mark.parametrize("model_type", ["gemma3", "qwen2_vl"])
def test_the_text_of_a_multimodal_config_is_measured(model_type, tmp_path):
    from transformers import AutoConfig

    text = {name: FIELDS[name] for name in FEW if name != "head_dim"}
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    text |= {"rope_parameters": rope} if model_type == "qwen2_vl" else {"head_dim": 16}
    AutoConfig.for_model(model_type, text_config=text).save_pretrained(tmp_path)
    source = read_source(tmp_path)
    assert source.of_many
    with torch.device("meta"):
        count = model_files._weight_count(source)
    assert count > 0


def test_a_model_that_does_not_fit_is_refused_before_it_is_built(config, monkeypatch):
    source = read_source(config)
    count = sum(p.numel() for p in load(source, torch.float32, CPU).parameters())
    for trains, factor in ((False, 1), (True, 2)):
        monkeypatch.setattr(machine, "available_memory", lambda _: count * 4 * factor - 1)  # noqa: B023
        way = "--work prefill,decode" if trains else "--dtype bfloat16"
        says = rf"its {count:,} weights in float32.* GiB, cpu has .* GiB free; try {way}$"
        with pytest.raises(ValueError, match=says):
            model_files.check_memory(source, torch.float32, CPU, trains)
    monkeypatch.setattr(machine, "available_memory", lambda _: 1)
    with pytest.raises(ValueError, match="try a config with fewer layers"):
        model_files.check_memory(source, torch.float32, CPU, trains=True)
    monkeypatch.setattr(machine, "available_memory", lambda _: count * 8)
    model_files.check_memory(source, torch.float32, CPU, trains=True)


def test_a_step_that_takes_too_long_or_too_much_memory_is_refused(config, monkeypatch):
    model, tick = tiny_model("llama"), itertools.count(step=0.5).__next__
    plan = make_model_plan(config, "prefill", device="cpu")
    model_bench.check_step(model, torch.zeros(1, 128, dtype=torch.long), plan, tick)
    long = torch.zeros(1, 1 << 14, dtype=torch.long)
    with pytest.raises(ValueError, match=r"--tokens must be fewer: .* would take about .* 60 s"):
        model_bench.check_step(model, long, plan, tick)
    model_bench.check_step(model, long, replace(plan, seconds=1e9), tick)
    monkeypatch.setattr("ropewalk.machine.available_memory", lambda _: 1000)
    with pytest.raises(ValueError, match=r"needs at least .* GiB, cpu has 0\.0 GiB free"):
        model_bench.check_step(model, long, plan, tick)


ROFORMER = {**FIELDS, "model_type": "roformer", "is_decoder": True}
BERT = {**FIELDS, "model_type": "modernbert"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"model": "nowhere"}, "--model must be a config.json or a folder that contains one"),
        ({"compile": True}, "--compile must be left out with --model"),
        ({"figure": "a.png"}, "--figure must be left out with --model"),
        ({"model": None, "tokens": "8"}, "--tokens must be left out without --model"),
        (
            {"model": None, "trust-remote-code": True},
            "--trust-remote-code must be left out without --model",
        ),
        ({"tokens": "1"}, "--tokens must be from 2 to 1,048,576, got 1"),
        ({"seconds": "3", "rounds": "3"}, "--rounds or --seconds must be given, and not both"),
        ({"out": "out.txt"}, "--out must end in .json"),
        ({"fields": {"model_type": "vit"}}, "vit"),
        ({"fields": {"model_type": "t5"}}, "t5"),
        ({"fields": {"model_type": "gpt2"}}, "--model must have a rope that ropewalk knows"),
        ({"fields": ROFORMER}, "patch can change: model must have a rope that patch can replace"),
        ({"model": __file__}, "--model must be a model's folder or a config.json, got"),
        ({"fields": BERT}, "--model must be a causal language model"),
        ({"fields": {"model_type": "no-such-type"}}, "no-such-type"),
        ({"fields": {**FIELDS, "hidden_size": "wide"}}, "hidden_size"),
        ({"fields": {**FIELDS, "vocab_size": 0}}, "vocab_size must be"),
        ({"fields": {**FIELDS, "num_key_value_heads": 3}}, "--model must run on tokens, got"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(words, said, config, mistake, tmp_path):
    words = {"model": str(config), **words}
    fields = words.pop("fields", None)
    if fields is not None:
        words["model"] = str(folder_of(tmp_path, fields))
    options = {f"--{name}": value for name, value in words.items() if value is not None}
    given = [each for option in options.items() for each in option if each is not True]
    assert said in (message := mistake("bench", "--device", "cpu", *given))
    assert "pass pairing" not in message


def test_pickled_weights_are_not_read(tmp_path):
    (folder_of(tmp_path, FIELDS) / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="nothing is unpickled"):
        read_source(tmp_path)
