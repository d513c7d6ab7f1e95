"""Read the rope of a published model from its config.json: layers, wavelengths, origins.

`ModelSpec.from_config` also takes the path of a config.json or a transformers config. The pairing
is not in the JSON; a table by `model_type` has it. A key that no rule reads is an error.
"""

from typing import Any

import ropewalk as rw

scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
scaling |= {"original_max_position_embeddings": 8192}
config: dict[str, Any] = {  # the rope's part of Llama 3.1 8B's config.json
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_scaling": scaling,
}
model = rw.ModelSpec.from_config(config)
layer = model.layers[0]
rope = layer.rope
assert rope is not None  # it is None in a layer that does not rotate
print(f"{len(model.layers)} layers, all the same: {len(set(map(repr, model.layers))) == 1}")
print(f"layer 0: {rope}\n\nwhere each value comes from:")
for field, origin in layer.origins.items():
    print(f"  {field:10} {origin}")

# A wavelength is the number of positions in which a pair makes one full turn.
plain = rw.RotarySpec(head_dim=rope.head_dim, theta=rope.theta)
print("\npair   wavelength   without the rule   stretched")
for pair in (0, 16, 28, 29, 32, 36, 48, 63):
    now, before = rope.wavelengths()[pair].item(), plain.wavelengths()[pair].item()
    print(f"{pair:4} {now:12,.0f} {before:18,.0f} {now / before:10.2f}x")

# Layers may differ: Gemma 3 scales its full-attention layers and leaves the sliding ones.
gemma = {
    "model_type": "gemma3_text",
    "num_hidden_layers": 6,
    "head_dim": 256,
    "sliding_window": 512,
}
gemma |= {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6}
gemma |= {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}
print("\nGemma 3:")
for number, each in enumerate(rw.ModelSpec.from_config(gemma).layers):
    if each.rope is not None:
        print(f"  layer {number}: theta {each.rope.theta:>9,.0f}, scaling {each.rope.scaling}")

wrong = config | {"rope_scaling": scaling | {"beta_fast": 32}}
try:
    rw.ModelSpec.from_config(wrong)
except ValueError as error:
    print(f"\na key of another rule: {error}")
