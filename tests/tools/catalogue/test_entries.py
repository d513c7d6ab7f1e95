"""Entries say what the reader does with published configs, and every model type has one.

These fail if a model type of the tables has no entry, if an entry's pairing, rotary part, axes,
default theta or layers without rope differ from the ropes that are read in published configs, if a
kind of rope has no test vector, and if a wrong name is not answered with the nearest one.
"""

import dataclasses

import pytest
from published import PUBLISHED, READ
from stack_entries import ENTRIES, entry_of_stack

from ropewalk import ModelSpec, tools
from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.rotary.config.reader import CLASS_DEFAULT
from ropewalk.rotary.config.sections import model_type_of
from ropewalk.rotary.config.stacks import MULTIMODAL_MODELS
from ropewalk.rotary.config.unread_types import UNSUPPORTED, WITHOUT_ROPE
from ropewalk.tools.catalogue.entries import rotary_part


def test_every_model_type_has_an_entry():
    assert {name for name, entry in ENTRIES.items() if entry.rope} == set(CONVENTIONS)
    assert {name for name, entry in ENTRIES.items() if entry.sections} >= set(MULTIMODAL_MODELS)
    for reasons, kind in ((UNSUPPORTED, "not described"), (WITHOUT_ROPE, "no rope")):
        of_kind = {name: entry.reason for name, entry in ENTRIES.items() if entry.kind == kind}
        assert of_kind == {k: why for k, why in reasons.items() if k not in CONVENTIONS}


def test_every_section_has_an_entry_with_a_rope():
    for entry in ENTRIES.values():
        for section in (entry.sections or {}).values():
            assert section.model_type is None or ENTRIES[section.model_type].rope


def layers_with_entries(name):
    """Yield each layer of a published config, with the entry of its stack."""
    config = PUBLISHED[name]
    model_type = model_type_of(config)
    for stack, layers in ModelSpec.from_config(config).stacks.items():
        entry = entry_of_stack(config, model_type, stack)
        # The first revision of DeepSeek-V2 has the type of earlier models.
        if model_type == "deepseek" and "qk_rope_head_dim" in config:
            entry = ENTRIES["deepseek_v2"]
        if config.get("use_mla") is False:  # DeepSeek-VL2 without latent attention
            entry = ENTRIES["llama"]
        for layer in layers:
            yield layer, entry.rope


@pytest.mark.parametrize("name", READ)
def test_entries_are_what_is_read_in_published_configs(name):
    for layer, entry in layers_with_entries(name):
        rope = layer.rope
        assert entry is not None
        if layer.layer_type in entry.nope_layer_types or rope is None:
            assert rope is None  # exaone4 has such types
            continue
        assert (rope.pairing, rope.write_pairing) == (entry.pairing, entry.write_pairing)
        assert rotary_part(rope) == entry.rotary_part or (
            (rotary_part(rope), entry.rotary_part) == ("all", "first")
        )
        assert rope.axis_count == entry.axis_count
        assert rope.reverse is entry.reverse
        assert (rope.blocks is not None) is entry.blocks
        assert rope.continuous is entry.continuous
        of_type = entry.theta_by_layer_type.get(layer.layer_type)
        if layer.origins["theta"] == CLASS_DEFAULT:
            assert rope.theta == (entry.theta_default if of_type is None else of_type.default)
        if layer.softmax_factor != 1:
            assert entry.softmax_factor != "1"
        if layer.indexer is not None:
            indexer = entry.indexer
            assert layer.indexer.pairing == indexer.pairing
            assert layer.indexer.write_pairing == indexer.write_pairing
            assert rotary_part(layer.indexer) == indexer.rotary_part


def test_every_kind_of_rope_has_a_vector_and_every_vector_a_rope():
    named = set()
    for entry in ENTRIES.values():
        for rope in filter(None, (entry.rope, entry.rope and entry.rope.indexer)):
            assert rope.vectors, entry.model_type
            named |= set(rope.vectors)
    assert named == set(tools.catalogue_vectors())


@pytest.mark.parametrize(
    ("model_type", "fields"),
    [  # from the code of each model; the comment says where
        ("llama", {"pairing": "half", "rotary_part": "all"}),  # rotate_half
        ("gptj", {"pairing": "interleaved", "rotary_part": "first"}),  # rotate_every_two
        ("gpt_neox", {"pairing": "half", "rotary_part_default": 0.25}),  # rotary_pct
        ("deepseek_v3", {"write_pairing": "half", "pairing_key": "rope_interleave"}),
        ("deepseek_v2", {"write_pairing": "interleaved", "rotary_part": "last"}),  # view_as_complex
        ("qwen3_vl_text", {"axes": "interleaved", "axis_count": 3}),  # apply_interleaved_mrope
        ("nanochat", {"reverse": True}),  # rotate_half without the minus sign
        ("smollm3", {"nope_key": "no_rope_layers", "theta_default": 2e6}),
        ("cohere2", {"nope_layer_types": ("full_attention",)}),
        ("qwen3_omni_moe_text", {"theta_default": 1e6}),  # default_theta
        ("bailing_hybrid", {"theta_default": 6e6}),  # rope_theta of its configuration
        ("phi-msft", {"rotary_part": "first", "rotary_part_keys": ("rotary_dim",)}),
        ("dbrx", {"theta_key": "attn_config.rope_theta"}),
        ("chatglm", {"theta_key": "rope_ratio"}),
    ],
)
def test_entries_of_well_known_models(model_type, fields):
    rope = tools.catalogue(model_type).rope
    assert {name: getattr(rope, name) for name in fields} == fields


def test_a_theta_by_type_of_layer_is_listed():
    theta = tools.catalogue("gemma3_text").rope.theta_by_layer_type["sliding_attention"]
    assert (theta.key, theta.default) == ("rope_local_base_freq", 10_000.0)


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"got 'lama'; did you mean 'llama'\?"):
        tools.catalogue("lama")
    with pytest.raises(ValueError, match="`ropewalk catalogue` lists all"):
        tools.catalogue("?" * 100_000)
    with pytest.raises(TypeError, match="model_type must be a string or None, got 3"):
        tools.catalogue(3)


def test_what_a_caller_does_to_an_entry_stays_with_the_caller():
    """Fails if a field can be set, or if the dictionaries of a record are those of the cache."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        tools.catalogue("llama").rope.pairing = "interleaved"
    parts = (
        lambda: tools.catalogue("gemma3_text").rope.theta_by_layer_type,
        lambda: next(e for e in tools.catalogue() if e.model_type == "phi").rope.rope_switches,
        lambda: tools.catalogue("gemma3").sections,
        lambda: tools.catalogue_vectors()["half"].spec,
        tools.catalogue_vectors,
    )
    for part in parts:
        before = dict(part())
        part()["changed"] = 1
        assert dict(part()) == before


def test_equal_records_have_one_hash():
    """Fails if a dictionary in a record makes it unhashable."""
    entries, vectors = tools.catalogue(), tools.catalogue_vectors()
    assert len({*entries, *tools.catalogue()}) == len(entries)
    assert len({*vectors.values(), *tools.catalogue_vectors().values()}) == len(vectors)
