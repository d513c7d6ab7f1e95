"""The warnings of `inspect`: each fault that users have met is found, and sound configs have none.

Every test changes one thing of a published config. They fail if the fault is not named, or if the
unchanged file is warned about too.
"""

import pytest
from published import GONE, PUBLISHED, changed

import ropewalk as rw

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
QWEN = {"max_position_embeddings": 131072}


def warned(config, where=""):
    """The warnings of a config by id; only those of an engine or a place, if one is named."""
    found = rw.tools.inspect(config).warnings
    return {each.id: each for each in found if where in each.where}


def qwen(**rope):
    """Qwen3 with YaRN as its README states it, and these fields changed."""
    fields = {key: value for key, value in {**YARN, **rope}.items() if value is not None}
    return changed("qwen3-0.6b", {"rope_scaling": fields, **QWEN})


def test_a_sound_config_has_no_warnings():
    assert warned(qwen(beta_fast=32.0, beta_slow=1.0)) == {}
    assert warned(PUBLISHED["llama-3.1-8b-instruct"]) == {}


def test_a_theta_that_was_lost():
    found = warned(changed("llama-3-8b", {"rope_theta": GONE}))
    assert "10,000 is the default" in found["theta-default"].cause
    assert "theta-default" not in warned(PUBLISHED["llama-3-8b"])


def test_weights_that_were_converted():
    llama = PUBLISHED["llama-3-8b"]
    found = warned({**llama, "rope_pairing": "interleaved"})["converted-weights"]
    assert "converted to interleaved" in found.cause
    assert "ropewalk convert --to half" in found.way_out
    assert "converted-weights" not in warned(llama)
    assert "converted-weights" not in warned({**llama, "rope_pairing": "half"})


def test_an_indexer_that_pairs_otherwise():
    v32 = changed("deepseek-v3", {"model_type": "deepseek_v32"})
    assert "the indexer's pairs are half" in warned(v32)["indexer-pairing"].cause
    sound = changed("deepseek-v3", {"model_type": "glm_moe_dsa"})
    assert "indexer-pairing" not in warned(sound)


def test_an_amplitude_that_is_stated_twice():
    mscales = {"mscale": 1.0, "mscale_all_dim": 0.5}
    found = warned(qwen(**mscales, attention_factor=1.3))["amplitude-contradiction"]
    assert "1.3" in found.cause
    assert "1.06482" in found.cause  # (1 + 0.1 ln 4) / (1 + 0.05 ln 4)
    assert "amplitude-contradiction" not in warned(qwen(**mscales))


def test_an_mscale_that_has_no_effect():
    found = warned(qwen(mscale=0.707))
    assert "1.13863" in found["mscale-alone"].cause
    assert "1.09801" in found["mscale-alone"].cause
    assert "1.06482" in warned(qwen(mscale_all_dim=0.5))["mscale-alone"].cause
    assert "mscale-alone" not in warned(qwen(mscale=1.0))  # the same in both


def test_a_table_shorter_than_the_context():
    found = warned(changed("qwen3-0.6b", {"rope_scaling": YARN, "max_position_embeddings": 40960}))
    assert "= 131,072" in found["table-shorter-than-context"].cause
    assert "131,072 / 32,768 = 4" not in found["factor-mismatch"].cause
    assert "40,960 / 32,768 = 1.25" in found["factor-mismatch"].cause


def test_a_context_that_was_not_raised_with_the_rule():
    found = warned(qwen(original_max_position_embeddings=131072))["table-shorter-than-context"]
    assert "= 524,288" in found.cause
    assert "scaled twice" in found.cause
    llama = changed("llama-3.1-8b-instruct", {"max_position_embeddings": 8192})
    assert "= 65,536" in warned(llama)["table-shorter-than-context"].cause


def test_positions_that_the_factor_does_not_reach():
    found = warned(qwen(factor=2.0))
    assert "from 65,536 on" in found["positions-beyond-factor"].cause
    assert "131,072 / 32,768 = 4" in found["factor-mismatch"].cause


def test_an_original_length_that_is_missing():
    """transformers uses the new maximum in silence; so the pairs that are interpolated change."""
    config = qwen(original_max_position_embeddings=None)
    found = warned(config)["original-length-missing"]
    assert "131,072" in found.cause
    assert "scaled twice" in found.cause
    rope = rw.tools.inspect(config).kinds[0].rope
    assert rope.rule_fields["original_length"] == 131_072
    transformers = pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
    theirs = transformers.Qwen3Config.from_dict(config)
    assert theirs.rope_parameters["original_max_position_embeddings"] == 131_072


@pytest.mark.parametrize("rule", ["linear", "dynamic"])
def test_a_length_that_may_be_scaled_twice(rule):
    config = changed("llama-2-7b", {"rope_scaling": {"type": rule, "factor": 4.0}})
    assert "serves 16,384" in warned(config)["length-scaled-twice"].cause


def test_a_field_that_no_rule_has():
    found = warned(PUBLISHED["dseek-draft-test"])["unknown-field"]
    assert found.where == "rope_scaling.attn_factor"
    assert "attention_factor: 1," in found.way_out  # 0.878… times 1.138…


def test_a_key_that_changes_nothing():
    hunyuan = rw.tools.inspect(PUBLISHED["hunyuan-7b-instruct"]).warnings
    unused = {each.where.rpartition(".")[2] for each in hunyuan if each.id == "unused-key"}
    assert unused == {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}
    assert "unused-key" not in warned(PUBLISHED["deepseek-v3"])


def test_contradictory_keys_are_an_error_in_one_line():
    with pytest.raises(ValueError, match="rope_theta must be the same as") as error:
        rw.tools.inspect(qwen(rope_theta=1e4))
    assert "\n" not in str(error.value)


def test_layers_without_rope():
    found = warned(PUBLISHED["smollm3-3b"])["nope-layers"]
    assert found.where.startswith("text layers 3, 7, 11")
    assert "nope-layers" not in warned(PUBLISHED["qwen3-next-80b-a3b-thinking"])


def test_a_documented_field_that_the_code_ignores():
    """Compared with transformers: the class rotates full heads although its config has 64."""
    text = {"model_type": "minimax_m3_vl_text", "head_dim": 128, "rotary_dim": 64}
    text |= {"num_hidden_layers": 1, "hidden_size": 256, "num_attention_heads": 2}
    found = warned(text)["documented-field-ignored"]
    assert "rotates full heads" in found.cause
    assert rw.tools.inspect(text).kinds[0].rope.rotary_dim == 64
    transformers = pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
    if "minimax_m3_vl" not in transformers.CONFIG_MAPPING:
        pytest.skip("transformers has no minimax_m3_vl")
    theirs = transformers.CONFIG_MAPPING["minimax_m3_vl"]().text_config
    assert theirs.rotary_dim == 64
    assert theirs.rope_parameters.get("partial_rotary_factor", 1.0) == 1.0


def test_engines_that_ignore_a_field():
    config = qwen(attention_factor=1.0, truncate=False)
    assert "attention_factor" in warned(config, "TensorRT")["engine-ignores-field"].cause
    assert "truncate" in warned(config, "TensorRT")["engine-ignores-field"].cause
    assert "truncate" in warned(config, "llama.cpp")["engine-ignores-field"].cause
    assert "beta_fast" in warned(config, "ONNX")["engine-ignores-field"].cause
    usual = qwen(attention_factor=1.138629, beta_fast=32.0, beta_slow=1.0)
    assert warned(usual) == {}  # the usual amplitude
    assert "beta_slow: 1" in warned(qwen(beta_fast=32.0), "ONNX")["engine-ignores-field"].way_out
    assert "beta_fast" not in warned(qwen(beta_fast=32.0), "ONNX")["engine-ignores-field"].way_out


@pytest.mark.parametrize(
    ("rule", "name"), [(YARN, "YaRN"), ({"rope_type": "linear", "factor": 4.0}, "Linear")]
)
def test_a_rule_that_an_engine_ignores_for_a_model_type(rule, name):
    config = changed("smollm2-135m-instruct", {"rope_scaling": rule})
    assert f"ignores {name}" in warned(config, "ONNX")["engine-ignores-field"].cause
    config = changed("qwen3-0.6b", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}})
    assert warned(config, "ONNX") == {}


def test_an_engine_that_loses_the_theta_of_todays_form():
    config = changed("qwen3-0.6b", {"rope_theta": GONE})
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6}
    assert "use 10,000" in warned(config, "TensorRT")["engine-ignores-field"].cause


@pytest.mark.parametrize("theta", [1e4, 1e6])
def test_an_engine_that_loses_the_rule_of_todays_form(theta):
    """Fails if the rule is passed over, or if fields of a rule that is lost are named too."""
    config = changed("qwen3-0.6b", {"rope_theta": GONE, "rope_scaling": GONE, **QWEN})
    fields = {**YARN, "attention_factor": 1.0, "truncate": False, "rope_theta": theta}
    config["rope_parameters"] = fields
    found = [each for each in rw.tools.inspect(config).warnings if "TensorRT" in each.where]
    causes = [each.cause for each in found]
    assert sum("ignore the rule YaRN" in cause for cause in causes) == 1
    assert sum("use 10,000" in cause for cause in causes) == (theta != 1e4)
    assert not any("attention_factor" in cause or "truncate" in cause for cause in causes)
    # The earlier form states the same rule where this engine reads it.
    config["rope_scaling"] = config.pop("rope_parameters")
    config["rope_theta"] = config["rope_scaling"].pop("rope_theta")
    found = warned(config, "TensorRT")["engine-ignores-field"]
    assert "attention_factor" in found.cause
    assert "ignore the rule" not in found.cause


def test_a_rule_of_todays_form_that_is_not_yarn():
    config = changed("llama-3.1-8b-instruct", {"rope_theta": GONE})
    config["rope_parameters"] = {**config.pop("rope_scaling"), "rope_theta": 1e4}
    assert "the rule Llama3" in warned(config, "TensorRT")["engine-ignores-field"].cause


def test_truncate_within_layer_types_is_ignored_by_transformers():
    fields = {**YARN, "rope_theta": 1e6, "truncate": False}
    config = changed("gpt-oss-20b", {"rope_scaling": GONE, "rope_theta": GONE})
    config["rope_parameters"] = {"full_attention": fields, "sliding_attention": fields}
    assert "rounds the band" in warned(config, "transformers")["engine-ignores-field"].cause


def test_a_context_that_is_missing():
    assert "context-missing" in warned(PUBLISHED["falcon-7b"])
