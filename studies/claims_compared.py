"""The evidence of claims that are decided by tested differences between trained models."""

from __future__ import annotations

from claims_evidence import BLEU, HARMLESS, MASKED, TEXT, Evidence, exists, held, weighed

from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS
from ropewalk.lab.scoring.significance import BETTER, EQUAL, WORSE

SAME = 0.01  # loss: smaller differences do not matter; rotary gains 0.02 over sinusoids


def translation() -> list[Evidence]:
    """Rotary compared with sinusoids and learned positions, on all test sets of translation."""
    found, reverse = weighed("default", "rotary", "sinusoidal", "test", BETTER), []
    for split in held(BLEU).splits:
        found += weighed(BLEU, "rotary", "sinusoidal", split, BETTER)
        found += weighed(BLEU, "learned", "rotary", split, WORSE)
        reverse += weighed(BLEU, "rotary", "learned", split, BETTER)
    return found + [each._replace(vote=None) for each in reverse]


def faster_linear() -> list[Evidence]:
    """Rotation after and before the feature map, compared with sinusoids."""
    found = weighed("performer", "rotary", "sinusoidal", "x1", BETTER)
    found += weighed("performer-before", "sinusoidal+rotary", "sinusoidal", "x1", BETTER)
    return found + weighed("performer-before", "rotary", "sinusoidal", "x1", BETTER)


def learned_sinusoidal() -> list[Evidence]:
    """Learned positions compared with sinusoids, in all results that have both."""
    found = []
    for folder, within in ((BLEU, 0.5), (TEXT, SAME), (MASKED, SAME)):
        for split in [s for s in held(folder).splits if folder == BLEU or s == "x1"]:
            found += weighed(folder, "learned", "sinusoidal", split, EQUAL, within)
    return found


def values_unrotated() -> list[Evidence]:
    """Rotated values at the trained length; beyond it, to compare."""
    found = weighed(TEXT, "rotary(values=True)", "rotary", "x1", WORSE)
    far = []
    for split in ("x2", "x4", "x8"):
        far += weighed(TEXT, "rotary(values=True)", "rotary", split, WORSE)
    for how in ("True", "absolute"):
        name = f"rotary(values={how})"
        for unit in ("values-causal", "values-masked"):
            found += weighed(f"claims/{unit}", name, "rotary", "x1", WORSE)
        far += weighed("claims/values-causal", name, "rotary", "x8", WORSE)
    return found + [each._replace(vote=None) for each in far]


def clip_harmless() -> list[Evidence]:
    """Distances clipped at 16, as in Shaw et al., and at 4 to compare, against all distances."""
    found = []
    for unit, within in (("claims/clip-causal", SAME), ("claims/clip-copy", 2.0)):
        for distance in (16, 4):
            name, whole = f"shaw(distance={distance})", "shaw(distance=64)"
            tests = weighed(unit, name, whole, "x1", HARMLESS, within)
            name = f"rotary_clipped(distance={distance})"
            if unit.endswith("causal") or distance == 4:
                tests += weighed(unit, name, "rotary", "x1", HARMLESS, within)
            counts = distance == 16 and unit.endswith("causal")
            found += [each if counts else each._replace(vote=None) for each in tests]
    return found


def every_layer() -> list[Evidence]:
    """Rotation in only the first or the last layer, compared with all layers."""
    found = []
    for unit in ("claims/layers-causal", "claims/layers-masked"):
        for name in ("rotary_only", "rotary_only(layer=last)"):
            found += weighed(unit, name, "rotary", "x1", WORSE)
    return found


def many_frequencies() -> list[Evidence]:
    """One frequency for all pairs, compared with many."""
    found = weighed(TEXT, "rotary(frequency=0.1)", "rotary", "x1", WORSE, SAME)
    far = weighed(TEXT, "rotary(frequency=0.1)", "rotary", "x8", WORSE, SAME)
    tried = {"causal": ("1.0", "0.3", "0.1", "0.03", "0.01"), "masked": ("1.0", "0.1", "0.01")}
    for task, frequencies in tried.items():
        for f in frequencies:
            unit = f"claims/frequencies-{task}"
            found += weighed(unit, f"rotary(frequency={f})", "rotary", "x1", WORSE, SAME)
    return found + [each._replace(vote=None) for each in far]


def linear_works() -> list[Evidence]:
    """Rotation after the feature map, compared with no positions."""
    return weighed("performer", "rotary", "none", "x1", BETTER)


def sizes() -> list[Evidence]:
    """Rotary compared with sinusoids at three sizes; no evidence unless all are committed."""
    units = [unit for unit in ("claims/sizes-small", "claims/sizes-large") if exists(unit)]
    found: list[Evidence] = []
    for folder in (TEXT, *units):
        config = held(folder).config
        for each in weighed(folder, "rotary", "sinusoidal", "x1", BETTER):
            says = f"{config.layers} layers of width {config.width}: {each.says}"
            found.append(each._replace(says=says))
    return found if len(units) == 2 else []


def bits() -> list[Evidence]:
    """Bits of the position compared with sinusoids; on text of 8 times the length, both fail."""
    far = weighed(TEXT, "binary", "sinusoidal", "x8", WORSE)
    near = weighed(TEXT, "binary", "sinusoidal", "x1", WORSE)
    for task in SEQUENCE_TASKS:
        near += weighed(f"generated/{task}", "binary", "sinusoidal", "x1", WORSE)
    return near + [each._replace(vote=None) for each in far]
