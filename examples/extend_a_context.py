"""Extend a context window: compare scaling rules on wavelengths, then keep the cached keys.

A model trained on 8,192 positions has seen only a part of a turn of its slow pairs. The rules
differ in which pairs they slow down so that 32,768 positions stay within what was seen.
"""

import torch

import ropewalk as rw

torch.manual_seed(0)
TRAINED, WANTED, THETA = 8_192, 32_768, 10_000.0
FACTOR = WANTED / TRAINED
rules = {
    "no rule": None,
    "Linear": rw.scaling.Linear(FACTOR),
    "NTKAware": rw.scaling.NTKAware(FACTOR),
    "DynamicNTK": rw.scaling.DynamicNTK(FACTOR, TRAINED),
    "YaRN": rw.scaling.YaRN(FACTOR, TRAINED),
    "Llama3": rw.scaling.Llama3(FACTOR, 1, 4, TRAINED),
}
specs = {name: rw.RotarySpec(128, theta=THETA, scaling=rule) for name, rule in rules.items()}
plain = specs["no rule"].wavelengths()

# Slow pairs did not finish a turn in training. "beyond": how many of them reach angles at WANTED
# that training never showed. Fast pairs carry the order of neighbors; "fast": how much a rule
# slows pair 0 down.
slow = plain > TRAINED
print(f"{int(slow.sum())} of 64 pairs do not finish a turn in {TRAINED:,} positions\n")
print("rule         beyond   fast   pair 40 stretched   amplitude")
for name, spec in specs.items():
    length = WANTED if spec.needs_length else None  # dynamic rules take the length they serve
    stretched = spec.wavelengths(length) / plain
    beyond = int((slow & (stretched * TRAINED < 0.999 * WANTED)).sum())
    amplitude = spec.amplitude_at(length)
    print(f"{name:12} {beyond:6} {stretched[0]:6.2f} {stretched[40]:19.2f} {amplitude:11.3f}")

# Keys are already in the cache, rotated by the old rope. Take them to the new one.
keys, positions = torch.randn(1, 2, TRAINED, 128), torch.arange(TRAINED)
old, new = specs["no rule"], specs["YaRN"]
cached = rw.RotaryEmbedding(old).rotate(keys)
moved = rw.rerotate(cached, positions, old, new)
wanted = rw.RotaryEmbedding(new).rotate(keys)
print(f"\nrerotate, against keys rotated by YaRN: {(moved - wanted).abs().max():.1e}")
print(f"the old keys as they are, against the same: {(cached - wanted).abs().max():.1f}")

# Or evict the oldest 512 keys and move the rest to the front.
rope = rw.RotaryEmbedding(old)
shifted = rope.shift(cached[:, :, 512:], by=-512)
wanted = rope.rotate(keys[:, :, 512:])
print(f"shift by -512, against keys rotated there: {(shifted - wanted).abs().max():.1e}")
