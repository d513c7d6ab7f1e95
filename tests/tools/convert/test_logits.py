"""Converted models compute the same under the other pairing, and converting back restores all.

These fail if a row of queries or keys moves wrongly or not at all, if anything else changes, or if
a type is in the table that no tiny model of transformers confirms. The rotation by the other
pairing is plain torch code of the tests.
"""

import json
import re

import pytest
import torch

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
from convertible_models import FORMS, contents, convertible_model
from other_pairing import logits, randomize, rotating
from safetensors.torch import load_file

from ropewalk import ModelSpec, tools
from ropewalk.tools.convert.weight_layouts import LAYOUTS, TEXT_TYPES

CASES = {name: (name, {}) for name in LAYOUTS}
CASES |= {f"{model_type}, {name}": (model_type, form) for name, (model_type, form) in FORMS.items()}
CASES |= {
    f"{model_type} with {text_type}": (model_type, {"text_type": text_type})
    for model_type, text_types in TEXT_TYPES.items()
    for text_type in sorted(text_types)
}
USUAL = ("llama", "qwen3", "gpt_neox", "gptj", "deepseek_v3", "phi3", "falcon, groups")
CLOSE = 1e-5  # relative to the largest logit
# Multipliers, and scores without a factor, amplify errors of rounding.
LESS_CLOSE = dict.fromkeys(
    ("granitemoe", "granitemoeshared", "gemma4_text", "dbrx", "paligemma"), 1e-4
)


def saved(model_type, fields, folder, **options):
    """Save a tiny model in which every parameter matters."""
    model = randomize(convertible_model(model_type, **fields))
    model.save_pretrained(folder, **options)
    return type(model)


def loaded(kind, folder):
    return kind.from_pretrained(folder, dtype=torch.float32).eval()


def distance(first, second):
    return ((first - second).abs().max() / second.abs().max()).item()


def compute_the_same(kind, folder):
    """Check that a model of half pairs and the converted one beside it have equal logits."""
    expected, converted = logits(loaded(kind, folder / "in")), loaded(kind, folder / "out")
    with rotating(converted, "interleaved"):
        assert distance(logits(converted), expected) < CLOSE


def other(folder):
    """Return the pairing of a saved model, and the other one."""
    ropes = [layer.rope for layer in ModelSpec.from_config(folder).layers if layer.rope]
    pairing = ropes[0].pairing
    return pairing, "half" if pairing == "interleaved" else "interleaved"


def text_parameters(model):
    """Return the parameters of the text's layers by number and name; files have others."""
    found = {}
    for name, parameter in model.named_parameters():
        number = re.search(r"\.\d+\..*", name)
        if number and "vis" not in name:
            found[number[0][1:]] = parameter
    return found


def check(case, tmp_path, *, each_tensor=False):
    model_type, fields = CASES[case]
    kind = saved(model_type, fields, tmp_path / "in")
    before, to = other(tmp_path / "in")
    conversion = tools.convert(tmp_path / "in", tmp_path / "out", to=to)
    assert (conversion.before, conversion.after, conversion.model_type) == (before, to, model_type)
    assert ModelSpec.from_config(tmp_path / "out").layers[1].rope is None or other(
        tmp_path / "out"
    ) == (to, before)
    tools.convert(tmp_path / "out", tmp_path / "back", to=before)
    assert contents(tmp_path / "back") == contents(tmp_path / "in")

    changed = {tensor.name for tensor in conversion.tensors}
    old, new = (load_file(tmp_path / name / "model.safetensors") for name in ("in", "out"))
    assert {name for name in old if not torch.equal(old[name], new[name])} == changed

    by_config = "rope_interleave" in conversion.config_change

    def distances(model):
        """Return how far logits are off with the new pairing, and with the old one."""
        if by_config:  # the code of this family reads both pairings
            both = []
            for _ in range(2):
                both.append(logits(model))
                model.config.rope_interleave = not model.config.rope_interleave
        else:
            with rotating(model, to):
                both = [logits(model)]
            both.append(logits(model))
        return [distance(each, expected) for each in both]

    first, second = (loaded(kind, tmp_path / name) for name in ("in", "out"))
    expected = logits(first)
    close = LESS_CLOSE.get(model_type, CLOSE)
    new, old = distances(second)
    assert new < close
    assert old > 0.02
    if each_tensor:
        original, parameters = text_parameters(first), text_parameters(second)
        for what in {tensor.what for tensor in conversion.tensors}:
            names = [f"{t.layer}.{what}" for t in conversion.tensors if t.what == what]
            converted = [parameters[name].detach().clone() for name in names]
            with torch.no_grad():
                for name in names:
                    parameters[name].copy_(original[name])
                assert distances(second)[0] > 100 * close, what
                for name, tensor in zip(names, converted, strict=True):
                    parameters[name].copy_(tensor)


@pytest.mark.parametrize("case", USUAL)
def test_usual_models_compute_the_same(case, tmp_path):
    check(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_supported_model_computes_the_same_and_needs_each_changed_tensor(case, tmp_path):
    check(case, tmp_path, each_tensor=True)


def test_a_sharded_bfloat16_model_is_converted_file_by_file(tmp_path):
    model = randomize(convertible_model("llama")).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "in", max_shard_size="60KB")
    assert len(list((tmp_path / "in").glob("*.safetensors"))) > 2
    conversion = tools.convert(tmp_path / "in", tmp_path / "out", to="interleaved")
    assert len({tensor.file for tensor in conversion.tensors}) > 1
    assert {tensor.bytes for tensor in conversion.tensors} == {2 * 64 * 64, 2 * 32 * 64}
    compute_the_same(type(model), tmp_path)
    tools.convert(tmp_path / "out", tmp_path / "back", to="half")
    assert contents(tmp_path / "back") == contents(tmp_path / "in")
    index = "model.safetensors.index.json"
    assert (tmp_path / "out" / index).read_bytes() == (tmp_path / "in" / index).read_bytes()


def test_a_base_model_saved_without_its_head(tmp_path):
    model = randomize(convertible_model("qwen3")).model
    model.save_pretrained(tmp_path / "in")
    conversion = tools.convert(tmp_path / "in", tmp_path / "out", to="interleaved")
    assert conversion.tensors[0].name == "layers.0.self_attn.k_norm.weight"
    compute_the_same(type(model), tmp_path)


def test_weights_with_another_pairing_than_their_config_says(tmp_path):
    """Meta's order, renamed for transformers: llama's config, but interleaved weights."""
    kind = saved("llama", {}, tmp_path / "right")
    expected = logits(loaded(kind, tmp_path / "right"))
    tools.convert(tmp_path / "right", tmp_path / "meta", to="interleaved")
    config = json.loads((tmp_path / "meta" / "config.json").read_text())
    del config["rope_pairing"]
    (tmp_path / "meta" / "config.json").write_text(json.dumps(config, indent=2))
    with pytest.raises(ValueError, match="says that the weights are half already"):
        tools.convert(tmp_path / "meta", tmp_path / "out", to="half")
    new = tmp_path / "out"
    conversion = tools.convert(tmp_path / "meta", new, to="half", read_as="interleaved")
    assert conversion.config_change == ""
    assert distance(logits(loaded(kind, tmp_path / "out")), expected) < CLOSE
