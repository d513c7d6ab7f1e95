"""Tiny models of all families of transformers: right in each layer, without a false alarm.

These fail when a family of `VERIFIED` raises an alarm, has a layer with a rope that is not tested,
or cannot be driven any more. `NOT_DRIVEN` says why the others of the same kind are left out.
"""

import pytest

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
import transformers
from tiny_models import any_tiny_model

from ropewalk import ModelSpec
from ropewalk.tools.verify.live import verify_model

VERIFIED = """
    afmoe apertus arcee aria_text axk1 axk2 bailing_hybrid beam bitnet codegen cohere cohere2
    cohere2_moe cwm deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 diffllama doge ernie4_5
    ernie4_5_moe eurobert exaone4 exaone_moe falcon flex_olmo flint gemma gemma2 gemma3_text
    gemma4_text glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt_neox gpt_neox_japanese gpt_oss gptj
    granite granite_docling_text granite_swa granitemoe granitemoe_swa granitemoeshared gte helium
    higgs_audio_v2 hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 hyperclovax jais2 jetmoe
    jina_embeddings_v3 kolibri1 laguna lfm2 lfm3 llama llama4_text longcat_flash mellum
    mimo_v2_flash minicpm3 minimax minimax_m2 ministral ministral3 mistral mistral4
    mistral_large4_text mixtral modernbert modernbert-decoder molmo2_text moshi muse_glimmer_text
    muse_spark_text nanochat nemotron neomme nomic_bert olmo olmo2 olmo3 olmo_hybrid olmoe
    openai_privacy_filter persimmon phi phi3 phimoe qwen2 qwen2_5_vl_text qwen2_moe qwen2_vl_text
    qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_vl_moe_text qwen3_vl_text
    roformer seed_oss smollm3 solar_open stablelm starcoder2 ultrabert vaultgemma youtu
""".split()  # noqa: SIM905

# Types that have layers whose rotation is not seen, and why.
NOT_SEEN = {
    "hrm_text": "two lists of layers run in turns, and only the first is numbered as in the config",
}

NOT_DRIVEN = {
    "idefics": "its text stack needs an image",
    "lasr_encoder": "it takes audio, no tokens",
    "mimi": "it takes audio, no tokens",
    "timesfm2_5": "it takes time series, no tokens",
    "csm": "its tokens have an axis more, one for each codebook",
    "muse_glimmer_assistant": "it takes another model's states, no tokens",
}


def test_at_least_forty_families():
    assert len(set(VERIFIED)) >= 40
    assert not set(VERIFIED) & set(NOT_DRIVEN)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", VERIFIED)
def test_a_family_is_right_in_every_layer(model_type):
    if model_type not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {model_type}")
    model = any_tiny_model(model_type)
    report = verify_model(model)
    faults = [(check.where, check.name, check.says) for check in report.with_verdict("fault")]
    assert faults == []
    layers = ModelSpec.from_config(model.config).layers
    tested = {check.where for check in report.with_verdict("right") if check.name == "frequencies"}
    for layer, spec in enumerate(layers):
        if spec.rope is not None and model_type not in NOT_SEEN:
            assert {where for where in tested if where.startswith(f"layer {layer},")}
    assert tested
