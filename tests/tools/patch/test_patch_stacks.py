"""`patch` in models of several stacks: vision and text, encoder and decoder.

These fail when the text of such a model is refused, when a vision tower is changed, or when the
pairing of converted text weights reaches another stack.
"""

import copy

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
import transformers

import ropewalk
from ropewalk import scaling

TEXT = {
    "vocab_size": 100, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
SMALL = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
VISION = {**SMALL, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
AXES = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2}
IDS = torch.arange(20)[None] % 90 + 3


#: Names of transformers' classes, and the sections of their configs.
STACKS = {
    "Qwen2VL": {
        "text_config": {**TEXT, **TOKENS, "rope_parameters": AXES},
        "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2},
    },
    "Gemma3": {
        "text_config": {**TEXT, "head_dim": 16},
        "vision_config": VISION,
        "mm_tokens_per_image": 4,
    },
    "Mistral3": {
        "text_config": {**TEXT, "head_dim": 16, "model_type": "mistral"},
        "vision_config": {**VISION, "model_type": "pixtral"},
    },
    "T5Gemma": {"encoder": TEXT, "decoder": TEXT, "vocab_size": 100},
}


def logits(model: nn.Module) -> torch.Tensor:
    both = {"decoder_input_ids": IDS} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=IDS, **both).logits


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**copy.deepcopy(STACKS[name]))
    return getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()


@pytest.mark.parametrize("name", STACKS)
def test_all_text_layers_are_taken(name):
    model = build(name)
    before = logits(model)
    undo = ropewalk.patch(model)
    stacks = 2 if name == "T5Gemma" else 1
    assert len(undo.taken) == 2 * stacks
    assert all("vis" in path for path, _ in undo.left)
    assert (logits(model) - before).abs().max() < 1e-5
    undo()
    assert torch.equal(logits(model), before)


def test_why_a_vision_tower_is_left():
    undo = ropewalk.patch(build("Qwen2VL"))
    reasons = dict(undo.left)
    assert "does not take positions (B, S)" in reasons["model.visual.rotary_pos_emb"]
    assert reasons["model.visual.blocks.0.attn"] == "its tables were not replaced"


@pytest.mark.parametrize("name", ["Qwen2VL", "Gemma3", "Mistral3"])
def test_converted_text_and_vision_as_it_was(name):
    """Rows of q and k are permuted by hand, and the config says so; unpatched, logits differ."""
    model = build(name)
    before = logits(model)
    order = torch.arange(16).reshape(2, 8).T.flatten()  # row 2j is the old j, row 2j + 1 j + 8
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "language_model" in name and ("q_proj" in name or "k_proj" in name):
                parameter.copy_(parameter.unflatten(0, (-1, 16))[:, order].flatten(0, 1))
            elif "language_model" in name and ("q_norm" in name or "k_norm" in name):
                parameter.copy_(parameter[order])
    model.config.get_text_config().rope_pairing = "interleaved"
    assert (logits(model) - before).abs().max() > 1e-4
    undo = ropewalk.patch(model)
    assert all("language_model" in path for path in undo.taken)
    assert (logits(model) - before).abs().max() < 1e-5
    with pytest.warns(UserWarning, match="wrong results unless it is patched"):
        undo()


def test_the_pairing_of_another_stack_is_refused():
    model = build("T5Gemma")
    model.config.decoder.rope_pairing = "interleaved"
    with pytest.raises(ValueError, match="must not have rope_pairing in its config if it has a st"):
        ropewalk.patch(model)


def test_a_rule_for_a_model_without_text_is_refused():
    with pytest.raises(ValueError, match="scaling must be left out for a model without a text"):
        ropewalk.patch(build("T5Gemma"), scaling=scaling.Linear(2.0))


def test_a_rule_of_the_text_is_saved_with_the_vision(tmp_path):
    model = build("Mistral3")
    before = logits(model)
    with ropewalk.patch(model, scaling=scaling.YaRN(4.0, original_length=16)):
        scaled = logits(model)
        model.save_pretrained(tmp_path)
    loaded = transformers.Mistral3ForConditionalGeneration.from_pretrained(tmp_path).eval()
    assert (scaled - before).abs().max() > 1e-5
    assert (logits(loaded) - scaled).abs().max() < 1e-5
    assert torch.equal(logits(model), before)
