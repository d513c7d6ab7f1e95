"""The ropes in a model's config.json: read to layers, and written from them.

A config passes through the files once, and has one name at each stage:

    source          a path, a dictionary … → `config`, the complete file
    sections        → `section`, the part of one stack: aliases resolved, nulls dropped
    unknown_keys    raises on keys of a section, and later of `rope_fields`, that no reader uses
    reader          → `settings`, the section over the family's `defaults`
    layer_types     → `layer_type` of each layer, and whether it has a rope
    layer_config    → the layer's `overrides`; settings and overrides make its `layer_config`
    rope_fields     → `rope_fields` of one rope, under today's names, from any form
    scaling_rules   → the scaling rule
    head_layouts    → `RotarySpec`: which dimensions of a head rotate, along which axes; R from
                    `partial_rotary_factor`
    reader          → `LayerSpec`, and the layers of each stack

`text_models`, `vision_audio_models` and `multimodal_models` have, by model type, what configs leave
out: pairing (half or interleaved), default theta, layout of heads. `conventions` defines the fields
of such an entry. `model_types` collects the entries and lists the types that are not supported.
`values` checks single values. `writer` writes a config, and reads it back as a check.
"""
