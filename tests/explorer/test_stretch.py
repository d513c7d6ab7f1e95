"""The room Stretch against `tools.extend`.

These fail if a published config differs from the one that the tests of configs use, if the page's
numbers of a rule differ from those of `extend`, if a mistake in a pasted config is not explained,
or if the exported answers lack a model, or grow.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ropewalk.explorer.stretch_room import MOST_TEXT, TIMES, extend_answer, published
from ropewalk.tools import extend

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

FOLDER = Path(__file__).parents[1] / "rotary" / "config" / "published_configs"
# Its pairs do not all rotate (p-RoPE), and a rope with several axes whose band has no rounding.
OTHERS = {
    "p-rope": {
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1,
        "max_position_embeddings": 4096,
        "rope_parameters": {
            "rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.5
        },
    },
    "two axes": {
        "model_type": "qwen2_vl", "hidden_size": 256, "num_attention_heads": 2,
        "num_hidden_layers": 1, "max_position_embeddings": 4096, "rope_theta": 1e6,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    },
}  # fmt: skip

COMPUTE = """async ([model, to, distances]) => {
  const { meanCosine } = await import("./scores.js");
  const { results, smoothScore } = await import("./stretch.js");
  const around = (f, at) => { // the mean over many distances from three quarters to five quarters
    const places = Array.from({ length: 2000 }, (_, i) => at * (0.75 + (0.5 * (i + 0.5)) / 2000));
    return places.reduce((sum, place) => sum + meanCosine(f, place), 0) / places.length;
  };
  return model.ropes.map((rope) => results(model, rope, to).map((each) => ({
    ...each, scores: distances.map((distance) => meanCosine(each.frequencies, distance)),
    smooth: [smoothScore(each.frequencies, 300), around(each.frequencies, 300)],
  })));
}"""


@pytest.mark.parametrize("name", list(published()))
def test_a_published_config_is_the_one_that_is_tested(name):
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    found, given = json.loads(text), published()[name]
    sources = json.loads((FOLDER / "sources.json").read_text(encoding="utf-8"))
    assert given["name"] == sources[name]["model"]
    assert given["config"].items() <= found.items()
    assert _ropes(given["config"]) == _ropes(found)


def _ropes(config):
    return [each.numbers for each in extend(config, 2**24).results]


def question(config, to, **more):
    return {"config": json.dumps(config), "to": to, "original": 0, **more}


@pytest.mark.slow
def test_the_page_has_the_numbers_of_extend(visit):
    page = visit()
    configs = {**{n: each["config"] for n, each in published().items()}, **OTHERS}
    for number, (name, config) in enumerate(configs.items()):
        today = extend(config, 2**24).current_length
        to = (2 * today, 7 * today + 13)[number % 2]
        wanted = extend(config, to)
        distances = wanted.results[0].numbers[0].distances
        model = extend_answer(question(config, to))
        for place, found in enumerate(page.evaluate(COMPUTE, [model, to, distances])):
            known = {each.method: each for each in wanted.results if not each.refused}
            assert [each["method"] for each in found] == list(known), name
            for each in found:
                numbers = known[each["method"]].numbers[place]
                assert each["growth"] == pytest.approx(numbers.growth, rel=1e-9), name
                assert each["leaving"] == list(numbers.leaving), (name, each["method"])
                assert each["amplitude"] == pytest.approx(numbers.amplitude, rel=1e-12)
                assert each["scores"] == pytest.approx(numbers.score_after, abs=1e-6)
                assert each["smooth"][0] == pytest.approx(each["smooth"][1], abs=1e-4)


@pytest.mark.slow
def test_the_exported_answers_have_every_model_and_stay_small(exported):
    files = sorted((exported[0] / "data").glob("stretch-*.js"))
    values = [file.read_text("utf-8").partition("=")[2].rstrip(";\n") for file in files]
    found = {file.stem: json.loads(value) for file, value in zip(files, values, strict=True)}
    assert found.keys() == {f"stretch-{name}" for name in published()}
    for each in found.values():
        assert [int(to) for to in each["targets"]] == [times * each["today"] for times in TIMES]
        for target in each["targets"].values():
            assert all(target["fragments"].values())
    assert sum(file.stat().st_size for file in files) < 900_000


def test_a_new_context_that_is_too_short_still_describes_the_ropes():
    found = extend_answer(question(published()["llama-2-7b"]["config"], 4096))
    assert "to must be longer" in found["mistake"]
    assert found["today"] == 4096
    assert found["ropes"][0]["rotaryDim"] == 128
    assert found["targets"] == {}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"config": "{", "to": 8192, "original": 0}, "this is not JSON"),
        ({"config": "[" * 5000, "to": 8192, "original": 0}, "this is not JSON"),
        ({"config": "[]", "to": 8192, "original": 0}, "must be an object"),
        ({"config": " " * (MOST_TEXT + 1), "to": 8192, "original": 0}, "at most 20,000"),
        ({"config": "{}", "to": 1, "original": 0}, "to must be a whole number"),
        ({"config": "{}", "to": True, "original": 0}, "to must be a whole number"),
        ({"config": 1, "to": 8192, "original": 0}, "config must be a text"),
        ({"to": 8192, "original": 0, "config": '"/etc/passwd"'}, "must be an object"),
        ({"to": 8192, "original": 0, "config": '{"model_type": "gpt2"}'}, "must be"),
    ],
)
def test_a_mistake_in_a_question_is_explained(asked, why):
    with pytest.raises(ValueError, match=why):
        extend_answer(asked)


@pytest.mark.slow
def test_a_model_is_chosen_read_and_given_back_by_its_link(visit):
    page = visit("#stretch")
    page.wait_for_selector("#field-engine", state="visible")
    page.select_option("#field-model", "llama-3.1-8b-instruct")
    page.wait_for_selector("text=llama3, for 524,288 tokens")
    page.select_option("#field-engine", "vllm")
    page.wait_for_selector("text=vllm serve MODEL")
    text = page.inner_text("pre")
    page.reload()
    page.wait_for_selector("text=vllm serve MODEL")
    assert page.inner_text("pre") == text
    page.click("text=Edit a copy of this config")
    page.wait_for_selector("textarea", state="visible")
    page.wait_for_selector("text=vllm serve MODEL")
    assert page.inner_text("pre") == text


@pytest.mark.slow
def test_the_focus_stays_on_a_rule_that_is_chosen_by_keyboard(visit):
    page = visit("#stretch")
    page.wait_for_selector("text=Parameters of each rule")
    page.click("text=Parameters of each rule")
    page.locator("table button", has_text="linear").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("th.chosen >> text=linear")
    assert page.evaluate("document.activeElement.textContent") == "linear"
    assert page.locator("details[open]").count() == 1


@pytest.mark.slow
def test_a_rope_that_yarn_refuses_has_the_other_rules(visit):
    page = visit("#stretch?model=own&original=1048576&to=16777216&head_dim=64&theta=2")
    sync_api.expect(page.get_by_text("Not yarn: YaRN needs pairs")).to_be_visible()
    assert page.locator("table button", has_text="linear").count() == 1


@pytest.mark.slow
def test_a_link_with_a_model_alone_means_four_times_its_context(visit):
    page = visit("#stretch?model=llama-3.1-8b-instruct")
    page.wait_for_selector("text=llama3, for 524,288 tokens")
    assert page.input_value("#field-to") == "524,288"
    page.goto(page.url.split("#")[0] + "#stretch?model=gemma-3-1b-it&rope=7")
    sync_api.expect(page.locator("#field-rope")).to_have_value("0")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"rope_theta": 1e4}, "model_type must be given"),
        ({"model_type": "nothing", "rope_theta": 1e4}, "whose code pairs dimensions the same way"),
        (
            {
                "model_type": "llama", "hidden_size": 64, "num_attention_heads": 2,
                "num_hidden_layers": 1,
            },
            "the field original length must be given",
        ),
    ],
)  # fmt: skip
def test_advice_can_be_followed_on_the_page(config, said):
    with pytest.raises(ValueError, match=said) as told:
        extend_answer(question(config, 8192))
    assert "--" not in str(told.value)
    assert "pass" not in str(told.value)
