"""What a config.json says of a model's ropes: read to layers, and written from them.

A config goes down through the files once, and has one name at each stage:

    source          a path, a dictionary … → `config`, the whole file
    sections        → `section`, what it says of one stack: aliases resolved, nulls dropped
    unknown_keys    refuses what nobody would read of a section, and later of `rope_fields`
    reader          → `settings`, the section over the family's `defaults`
    layer_types     → `layer_type` of each layer, and whether it has a rope
    layer_config    → the layer's `overrides`; the settings with them are its `layer_config`
    rope_fields     → `rope_fields`, of one rope, under today's names, whatever form they came in
    scaling_rules   → the scaling rule
    head_layouts    → `RotarySpec`: which dimensions of a head rotate, by which axes; R from
                    `partial_rotary_factor`
    reader          → `LayerSpec`, and the layers of each stack

`text_models`, `vision_audio_models` and `multimodal_models` say, by model type, what configs do not
say: pairing (half or interleaved), theta where it is missing, layout of heads. `conventions`
defines the fields of such an entry, `model_types` gathers the entries and lists the types that are
refused. `values` checks single values. `writer` goes the way back, and reads what it wrote.
"""
