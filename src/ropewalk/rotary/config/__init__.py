"""The ropes in a model's config.json: read to layers, and written from them.

A config passes through the files once, and has one name at each stage:

    config_json     a path, a dictionary … → `config`, the complete file
    sections        → `section`, the part of one stack, without nulls: keys by their usual names and
                    places; raises on keys that no reader uses
    reader          → `settings`, the section over the family's `defaults`
    layer_types     → `layer_type` of each layer, and whether it has a rope; the layer's
                    `overrides`: settings and overrides make its `layer_config`
    rope_fields     → `rope_fields` of one rope, under today's names, from any form; the scaling
                    rule; raises on fields that no reader uses
    head_layouts    → `RotarySpec`: which dimensions of a head rotate, along which axes; R from
                    `partial_rotary_factor`
    reader          → `LayerSpec` with the origins of its values, and the layers of each stack

A config of diffusers (`_class_name`) goes from `config_json` to `diffusers_reader`, which reads it
by the rows of `diffusers_types`.

`model_types` has, by model type, what configs leave out: pairing (half or interleaved), default
theta, layout of heads. `conventions` defines the fields of such an entry.
`writer` writes a config, and reads it back as a check.
"""
