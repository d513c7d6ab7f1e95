"""`measure_loss` scores the tokens that it says, under the rules that it says, and undoes them.

These fail if a loss is that of other tokens or another context, if a rule is not the one in force,
if an interval covers too seldom, if a right rope is called not flat or a broken one flat, or if the
model is not as before.
"""

import re
from itertools import pairwise

import pytest
import torch
from tiny_models import tiny_model
from torch.nn import functional as F

from ropewalk import patch, scaling, tools
from ropewalk.tools.loss.loss_measurement import difference
from ropewalk.tools.loss.loss_passes import context_grid, far_offsets, measure_shifts, passage_ends
from ropewalk.tools.loss.loss_report import findings

pytest.importorskip("transformers")

ORIGINAL, TO = 64, 256
YARN = scaling.YaRN(4.0, original_length=ORIGINAL)
RULES = {"yarn": YARN, "dynamic": scaling.DynamicNTK(4.0, original_length=ORIGINAL)}
SIZES = {"num_hidden_layers": 2, "max_position_embeddings": ORIGINAL}


def text(count=1000):
    """Random numbers in which every 40 tokens come again: positions matter for their prediction."""
    generator = torch.Generator().manual_seed(1)
    part = torch.randint(3, 64, (40,), generator=generator)
    return part.repeat(count // 40 + 1)[:count]


def sharp_model(model_type="llama", **fields):
    """A random model whose attention looks at few tokens, so that its loss depends on angles."""
    model = tiny_model(model_type, **SIZES, **fields)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                weight *= 40
            elif "lm_head" in name or "embed" in name:
                weight *= 20
    return model


def measure(model, rules=RULES, **more):
    return tools.measure_loss(model, text(), rules, original=ORIGINAL, to=TO, **more)


def own_losses(model, end, context, start=()):
    """The loss of the last 16 tokens before `end`, without the tool."""
    ids = torch.tensor([[*start, *text()[end - context + len(start) : end]]])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0].double()
    return F.cross_entropy(logits[:-1], ids[0, 1:], reduction="none")[-16:]


class TestLossByContext:
    def test_it_is_the_loss_of_these_tokens_under_these_rules(self):
        model = sharp_model()
        found = measure(model, passages=3)
        assert (found.scored, found.ends) == (16, (256, 628, 1000))
        grid = [each.context for each in found.results[0].contexts]
        assert grid == [32, 64, 128, 256]
        own, base = {}, {}
        for name, rule in {"none": None, **RULES}.items():
            with patch(model, scaling=rule):
                for context in grid:
                    each = [own_losses(model, end, context) for end in found.ends]
                    own[name, context] = torch.stack(each)
        for name in ("none", *RULES):
            for row in found.result(name).contexts:
                losses = own[name, row.context]
                assert row.loss == pytest.approx(losses.mean().item(), abs=1e-4)
                assert row.by_passage == pytest.approx(losses.mean(1).tolist(), abs=1e-4)
                for change, other in (
                    (row.from_none, own["none", row.context]),
                    (row.from_original, own["none", ORIGINAL]),
                ):
                    assert change.mean == pytest.approx((losses - other).mean().item(), abs=1e-4)
        base = own["none", TO].mean()
        assert abs(own["yarn", TO].mean() - base) > 0.01  # else the test would show nothing
        best = min(("none", *RULES), key=lambda name: own[name, TO].mean())
        assert found.lowest == best

    def test_start_tokens_come_before_each_context(self):
        model = sharp_model()
        found = measure(model, {}, passages=1, start=torch.tensor([1]))
        own = own_losses(model, found.ends[0], 64, start=[1]).mean()
        at = next(each for each in found.results[0].contexts if each.context == 64)
        assert at.loss == pytest.approx(own.item(), abs=1e-4)

    def test_the_model_is_as_before(self):
        model = sharp_model().train()
        config = model.config
        weights = {name: each.clone() for name, each in model.state_dict().items()}
        with torch.no_grad():
            before = model.eval()(input_ids=text(90)[None]).logits
        model.train()
        measure(model, passages=2)
        assert model.training
        assert model.config is config
        assert type(model).__name__ == "LlamaForCausalLM"
        for name, each in model.state_dict().items():
            assert torch.equal(each, weights[name])
        with torch.no_grad():
            after = model.eval()(input_ids=text(90)[None]).logits
        assert torch.equal(before, after)

    def test_a_rule_that_patch_refuses_is_a_result_with_the_reason(self):
        other = scaling.DynamicNTK(4.0, original_length=32)
        found = measure(sharp_model(), {"yarn": YARN, "dynamic": other}, passages=1)
        assert "scaling must have original_length=64" in found.result("dynamic").refused
        assert found.result("dynamic").contexts == ()
        assert found.result("yarn").refused is None
        with pytest.raises(ValueError, match="rules must have one that this model can have"):
            measure(sharp_model(), {"dynamic": other})

    def test_a_rule_of_the_config_is_called_own(self):
        rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
        found = measure(sharp_model(rope_parameters=rope), {"yarn": YARN}, passages=1)
        assert [each.method for each in found.results] == ["own", "yarn"]

    def test_a_loss_that_is_not_finite_is_no_number(self):
        model = sharp_model()
        with torch.no_grad():
            model.lm_head.weight *= 1e38
        with pytest.raises(ValueError, match="got a loss that is not a finite number, with 256"):
            measure(model)

    def test_float16_is_named_as_what_may_overflow(self):
        model = sharp_model()
        with torch.no_grad():
            model.lm_head.weight *= 1e5
        assert measure(model, passages=1).results[0].contexts
        says = "with 256 tokens; float16 overflows early: use bfloat16 or float32$"
        with pytest.raises(ValueError, match=says):
            measure(model.half(), passages=1)


class TestShifts:
    @pytest.mark.parametrize("model_type", ["llama", "gpt_neox", "glm4"])
    def test_right_ropes_are_flat(self, model_type):
        found = measure(sharp_model(model_type), {"yarn": YARN}, passages=2)
        for each in found.results:
            assert each.shifts.flat, findings(found)
            assert [row.offset for row in each.shifts.losses] == [0, 1, 2, 3, 12, 24, 48, 96, 192]
            assert abs(each.shifts.slope) < each.shifts.rounding

    def test_a_rule_that_depends_on_the_length_is_flat_at_one_length(self):
        for to in (TO, ORIGINAL + 1):  # where offsets of 2 and 3 end beyond `to`
            found = tools.measure_loss(
                sharp_model(), text(), {"dynamic": RULES["dynamic"]}, original=ORIGINAL, to=to,
                passages=2,
            )  # fmt: skip
            shifts = found.result("dynamic").shifts
            assert shifts.flat
            assert max(each.largest for each in shifts.losses) < 1e-3

    def test_rounded_positions_are_not_flat(self):
        model = sharp_model()
        rope = model.model.rotary_emb
        exact = rope.forward

        def rounded(x, position_ids):  # bfloat16 has 8 bits
            return exact(x, position_ids.bfloat16().float())

        rope.forward = rounded
        found = tools.measure_loss(model, text(2000), {}, original=ORIGINAL, to=1024, passages=2)
        assert found.unpatched.flat is False
        assert found.results[0].shifts == found.unpatched
        assert "its forward was replaced" in found.not_patched
        assert found.unpatched.losses[-1].largest > 100 * found.unpatched.rounding
        assert "not flat, moving positions by" in " ".join(findings(found))

    def test_absolute_positions_are_not_flat(self):
        model = sharp_model()
        positions = torch.randn(TO, 64)
        model.model.layers[0].register_forward_pre_hook(
            lambda layer, args, kwargs: ((args[0] + positions[kwargs["position_ids"]],), kwargs),
            with_kwargs=True,
        )
        found = measure(model, {"yarn": YARN}, passages=2)
        assert [each.shifts.flat for each in found.results] == [False, False]

    def test_float32_angles_far_away_are_not_flat_but_exact_ones_are(self):
        """At the position 2^19, float32 angles are off by up to 2^-6."""
        model, ids = sharp_model(), text(1 << 19)
        passages = [ids[:ORIGINAL], ids[7 : 7 + ORIGINAL]]
        assert measure_shifts(model, passages, 16, 1 << 19).flat is False
        with patch(model):
            assert measure_shifts(model, passages, 16, 1 << 19).flat


class TestIntervals:
    def test_normal_differences_are_covered(self):
        torch.manual_seed(0)
        missed = 0
        for _ in range(300):
            found = difference(torch.randn(8, 1).double().expand(-1, 4), torch.zeros(8, 4))
            missed += not found.low <= 0 <= found.high
        assert 0.01 < missed / 300 < 0.09

    def test_one_passage_has_an_interval_of_blocks_or_none(self):
        losses = torch.randn(1, 256).double()
        found = difference(losses, torch.zeros(1, 256))
        assert found.low < found.mean < found.high
        assert difference(losses[:, :64], torch.zeros(1, 64)).low is None

    def test_the_same_losses_have_no_difference(self):
        losses = torch.randn(8, 4).double()
        found = difference(losses, losses)
        assert (found.mean, found.low, found.high, found.shown) == (0, 0, 0, False)


class TestWindows:
    def test_contexts_double_up_to_the_target(self):
        assert context_grid(4096, 16384, 256) == (1024, 2048, 4096, 8192, 16384)
        assert context_grid(1024, 5000, 256) == (512, 1024, 2048, 4096, 5000)

    @pytest.mark.parametrize(("count", "ends"), [(256, 1), (271, 1), (272, 2), (1000, 16)])
    def test_scored_tokens_do_not_overlap(self, count, ends):
        found = passage_ends(count, 256, 16, 16)
        assert len(found) == ends
        assert found[-1] == count
        assert all(b - a >= 16 for a, b in pairwise(found))
        assert found[0] >= 256

    def test_offsets_reach_the_last_place(self):
        assert far_offsets(1024, 128) == (56, 112, 224, 448, 896)


class TestBadInput:
    @pytest.mark.parametrize(
        ("more", "says"),
        [
            ({"tokens": text(255)}, "tokens must be at least 256, the longest context, got 255"),
            ({"tokens": text()[None]}, r"tokens must be the ids of tokens \(N,\), got shape"),
            ({"tokens": text() + 61}, r"tokens must be ids from 0 to 63, got 1\d\d"),
            ({"tokens": text() - 4}, "tokens must be ids from 0 to 63, got -1"),
            ({"start": torch.tensor([64])}, "start must be ids from 0 to 63, got 64"),
            ({"to": 64}, "to must be at least 65"),
            ({"original": 4}, "original must be at least 8"),
            ({"passages": 0}, "passages must be at least 1"),
            ({"rules": {"none": YARN}}, "rules must not have the name none"),
            ({"seconds": -1.0}, "seconds must be"),
        ],
    )
    def test_it_is_named(self, more, says):
        given = {"tokens": text(), "rules": RULES, "original": ORIGINAL, "to": TO, **more}
        with pytest.raises(ValueError, match=says):
            tools.measure_loss(tiny_model("llama", **SIZES), **given)

    def test_rules_are_rules(self):
        with pytest.raises(TypeError, match=r"must be a rule of ropewalk\.scaling, got 4"):
            measure(tiny_model("llama", **SIZES), {"yarn": 4})

    def test_a_measurement_that_takes_too_long_is_refused_before_it_begins(self):
        doing = []
        with pytest.raises(ValueError, match=r"passes would take about .* s, more than 1e-06 s"):
            measure(tiny_model("llama", **SIZES), seconds=1e-6, watch=doing.append)
        assert doing == []

    def test_a_pass_that_does_not_fit_into_memory_is_refused(self, monkeypatch):
        monkeypatch.setattr("ropewalk.machine.available_memory", lambda _: 1000)
        with pytest.raises(ValueError, match=re.escape("to must be smaller: a pass of 256 tokens")):
            measure(tiny_model("llama", **SIZES))

    def test_a_model_of_another_kind_is_not_said_to_run_on_less(self):
        model = tiny_model("llama", **SIZES).model  # without logits
        with pytest.raises(ValueError, match=r"no attribute 'logits'\" with 256 tokens$"):
            measure(model)

    def test_a_model_that_does_not_run_that_far_is_named(self):
        model = tiny_model("llama", **SIZES)
        run = model.forward

        def short(input_ids, logits_to_keep=0, **more):
            if input_ids.shape[1] > 128:
                raise RuntimeError("too long")
            return run(input_ids=input_ids, logits_to_keep=logits_to_keep, **more)

        model.forward = short
        doing = []
        says = r"model must run on 256 tokens, got RuntimeError: 'too long' with 256 tokens; "
        says += r"a smaller context \(to\) may run$"
        with pytest.raises(ValueError, match=says):
            measure(model, watch=doing.append)
        assert doing == ["none with 256 tokens of context"]
