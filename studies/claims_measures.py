"""Numbers of claims that are no tested difference: ratios, times, and what needs no training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import torch
from claims_evidence import (
    BLEU,
    MASKED,
    TEXT,
    Measured,
    gain,
    held,
    loss_of,
    opposite,
    over,
    row_of,
)
from common import RESULTS
from rotary_parts_report import decay

from ropewalk import RotaryEmbedding, RotarySpec
from ropewalk.encodings import build
from ropewalk.encodings.absolute import sinusoids
from ropewalk.files import Facts
from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS
from ropewalk.lab.results import read_summary
from ropewalk.model import LanguageModel, TransformerShape, initialize

COST = "../benchmarks/results/cost.json"
SCRIPT = "../studies/claims_measures.py"
RELATIVE = ("alibi", "t5", "kerple", "fire", "shaw", "transformer_xl", "deberta", "cope")
SHARPNESS, PARTS = "sharpness", "rotary-parts"
REFERENCE, RULES = "reference", "reference/rules"
PERPLEXITIES = "× its perplexity at the trained length"
F_97 = {2: 39.0, 4: 9.60, 7: 4.99}  # 97.5 % points of F with the same degrees of freedom twice


def exactly(value: float, unit: str) -> Measured:
    """Return a number that this script computes, in which nothing varies."""
    return Measured(value, value, value, unit, SCRIPT)


def changed(found: Measured, change: Callable[[float], float], unit: str) -> Measured:
    """Return a number and its interval, both changed by an increasing function."""
    value, low, high = map(change, (found.value, found.low, found.high))
    return replace(found, value=value, low=low, high=high, unit=unit)


def gain_in_percent(split: str) -> Measured:
    """Return the gain of rotary over sinusoids in % of their BLEU."""
    found = gain(BLEU, "rotary", "sinusoidal", split)
    base = row_of(BLEU, "sinusoidal").summary[split].spread("bleu").mean
    assert base is not None
    return changed(found, lambda points: 100 * points / base, "%")


def steps_saved() -> Measured:
    """Return the % of steps that rotary needs less for the loss that sinusoids end with."""
    ends = [cell.validation_loss for cell in row_of(MASKED, "sinusoidal").cells]
    goal = sum(end for end in ends if end is not None) / len(ends)
    saved = []
    for cell in row_of(MASKED, "rotary").cells:
        there = [s.step for s in cell.validation if s.loss is not None and s.loss <= goal]
        saved.append(100 - 100 * (there[0] / cell.steps if there else 1.0))
    return over(saved, "% of the steps", MASKED)


def least_sharpening() -> Measured:
    """Return the least fall of entropy between two layers of rotary's encoder, over seeds."""
    cells = read_summary(RESULTS / SHARPNESS / "results.json")["encodings"]["rotary"]
    falls = []
    for cell in cells:
        shares = [layer["share"] for layer in cell["encoder"]]
        falls.append(100 * min(before - after for before, after in pairwise(shares)))
    return over(falls, "points of entropy", SHARPNESS)


def time_ratio(name: str) -> Measured:
    """Return the time of a training step at the longest length, relative to no positions."""
    rows = {row["name"]: row for row in read_summary(RESULTS / COST)["rows"]}
    return over(rows[name]["train"][-1]["ratios"], "× the time", COST)


def perplexity_ratio(name: str) -> Measured:
    """Return perplexity at 8 times the trained length, relative to that at the trained length."""
    cells = row_of(TEXT, name).cells
    near, far = ([c.scores[s].score("loss") for c in cells] for s in ("x1", "x8"))
    logs = [b - a for a, b in zip(near, far, strict=True) if a is not None and b is not None]
    return changed(over(logs, "", TEXT), math.exp, PERPLEXITIES)


def _cells(name: str) -> list[Facts]:
    cells: list[Facts] = read_summary(RESULTS / PARTS / "results.json")["encodings"][name]["cells"]
    return cells


def fall_of_scores(name: str) -> Measured:
    """Return the mean score of the nearest eighth of distances less that of the farthest."""
    falls = [sum(map(decay, cell["scores"])) / len(cell["scores"]) for cell in _cells(name)]
    return over(falls, "of score", PARTS)


def bound_of_scores(distance: int) -> Measured:
    """Return RoFormer's bound on a score, the mean of |S_j| for 128 dimensions (section 3.4.3)."""
    return exactly(_bound(distance), "of 32.5 at distance 0")


def _bound(distance: int) -> float:
    frequencies = RotarySpec(head_dim=128).inverse_frequencies()
    return float(torch.exp(1j * frequencies * distance).cumsum(0).abs().mean())


def fall_of_bound() -> Measured:
    """Return the largest of RoFormer's bounds far away, relative to that at distance 1."""
    ratio = max(map(_bound, range(256, 4097))) / _bound(1)
    return exactly(ratio, "× the bound at distance 1")


def farthest_peak(distance: int = 200, head_dim: int = 64) -> Measured:
    """Return the distance at which a key scores highest that was chosen to do so far away."""
    rope = RotaryEmbedding(RotarySpec(head_dim=head_dim))
    q = torch.randn(1, 1, 1, head_dim, generator=torch.Generator().manual_seed(0))
    key, _ = rope(q, q, torch.tensor([distance]))
    queries, _ = rope(q.expand(1, 1, 256, head_dim), q, torch.arange(256), torch.tensor([0]))
    return exactly(float((queries * key).sum(-1).argmax()), "tokens away")


def learned_far_apart() -> Measured:
    """Return how much farther apart the trained vectors of 2 and 500 are than of 1 and 2."""
    unit = "claims/learned-distances"
    found = read_summary(RESULTS / unit / "results.json")["learned"]
    near_and_far = [each["named"] for each in found]
    return over([far / near for near, far in near_and_far], "× as far", unit)


def sinusoids_far_apart() -> Measured:
    """Return how much farther apart the sinusoids of 2 and 500 are than those of 1 and 2."""
    one, two, far = sinusoids(torch.tensor([1, 2, 500]), 128).double()
    return exactly(((far - two).norm() / (two - one).norm()).item(), "× as far")


def integers_gradient(norm: str) -> Measured:
    """Return the largest gradient with integers, relative to that with sinusoids, over seeds."""
    unit = "claims/integer-positions"
    cells = read_summary(RESULTS / unit / "results.json")["norms"][norm]
    ratios = [
        math.log(one["largest"] / other["largest"])
        for one, other in zip(cells["integer"], cells["sinusoidal"], strict=True)
    ]
    return changed(over(ratios, "", unit), math.exp, "× the gradient")


def positions_kept_out() -> Measured:
    """Return how much more of the position (R²) is left with sinusoids, after the last layer."""
    pairs = zip(_cells("sinusoidal"), _cells("rotary"), strict=True)
    gaps = [max(0.0, a["position_left"][-1]) - max(0.0, b["position_left"][-1]) for a, b in pairs]
    return over(gaps, "of R²", PARTS)


def order_without_positions() -> Measured:
    """Return how well a position can be read after the last layer of models without positions."""
    return over([cell["position_left"][-1] for cell in _cells("none")], "of R²", PARTS)


def tokens_lost(layer: int) -> Measured:
    """Return how many fewer vectors are nearest to their own token with sinusoids, by layer."""
    unit = "claims/token-left"
    cells = read_summary(RESULTS / unit / "results.json")["encodings"]
    pairs = zip(cells["rotary"], cells["sinusoidal"], strict=True)
    return over(
        [100 * (a["token_left"][layer] - b["token_left"][layer]) for a, b in pairs], "points", unit
    )


def spread_of_seeds() -> Measured:
    """Return how far rotary's losses spread over seeds, relative to those of sinusoids."""
    spreads = []
    for name in ("rotary", "sinusoidal"):
        losses = [cell.scores["x1"].score("loss") for cell in row_of(TEXT, name).cells]
        spreads.append(torch.tensor(losses, dtype=torch.float64).std().item())
    ratio, seeds = spreads[0] / spreads[1], len(losses)
    away = math.sqrt(F_97[seeds - 1])
    return Measured(ratio, ratio / away, ratio * away, "× the spread", TEXT, seeds)


def gain_on_tasks(name: str, other: str, split: str = "x2") -> Measured:
    """Return how many more answers are right, mean of the seven generated tasks, over seeds."""
    gaps: dict[int, list[float]] = {}
    for task in SEQUENCE_TASKS:
        cells = zip(*(row_of(f"generated/{task}", n).cells for n in (name, other)), strict=True)
        for a, b in cells:
            scores = (each.scores[split].score("exact") for each in (a, b))
            one, two = (x for x in scores if x is not None)
            gaps.setdefault(a.seed, []).append(one - two)
    return over([sum(each) / len(each) for each in gaps.values()], "points", "generated")


def gain_over_best(name: str) -> Measured:
    """Return the gain of an encoding over the best of all others on generated tasks."""
    names = [row.name for row in held("generated/copy").encodings if row.name != name]
    known = [n for n in names if all(_answers(task, n) for task in SEQUENCE_TASKS)]
    return min((gain_on_tasks(name, other) for other in known), key=lambda each: each.value)


def _answers(task: str, name: str) -> bool:
    return row_of(f"generated/{task}", name).summary["x2"].spread("exact").mean is not None


def least_single_frequency() -> Measured:
    """Return how much worse the best single frequency is than many."""
    unit = "claims/frequencies-causal"
    names = [row.name for row in held(unit).encodings if row.name != "rotary"]
    return min((loss_of(unit, name, "rotary") for name in names), key=lambda each: each.value)


def smallest_gain() -> Measured:
    """Return the gain of rotary over sinusoids at the size where it is least sure."""
    found = [gain(unit, "rotary", "sinusoidal") for unit in SIZES]
    return min(found, key=lambda each: each.low)


SIZES = ("claims/sizes-small", TEXT, "claims/sizes-large")


def parameters(unit: str) -> str:
    """Return the size of a unit's models in words."""
    config = held(unit).config
    return f"{config.layers} layers of width {config.width}"


def rule_gain(rule: str, split: str = "x8") -> Measured:
    """Return how much lower the loss is with a scaling rule, without training."""
    (run,) = read_summary(RESULTS / "extrapolation" / "results.json")["runs"]
    seeds = len(run["rules"]["scores"][rule][split])
    return opposite(_tested(run["rules"]["tests"][split][rule], "extrapolation", seeds))


def _tested(test: Facts, link: str, seeds: int) -> Measured:
    return Measured(test["difference"], test["low"], test["high"], "nats", link, seeds)


def reference_loss(name: str, times: int, unit: str = REFERENCE) -> Measured:
    """Return how much worse a row of the reference experiment is than `rotary` without a rule.

    times: length of the windows, relative to that of training. unit: the encodings or the rules.
    """
    found = read_summary(RESULTS / unit / "results.json")
    test = found["tests"][str(times * found["trained"])][name]
    return _tested(test, unit, found["seeds"])


def reference_ratio(name: str) -> Measured:
    """Return the perplexity of the same tokens in windows of 8 times the length, relative to 1."""
    found = read_summary(RESULTS / REFERENCE / "results.json")
    test = _tested(found["context"][name], REFERENCE, found["seeds"])
    return changed(test, math.exp, PERPLEXITIES)


def reference_shuffled(name: str) -> Measured:
    """Return what a random order of the earlier tokens adds to the loss."""
    found = read_summary(RESULTS / REFERENCE / "results.json")
    return _tested(found["shuffled"][name], REFERENCE, found["seeds"])


@torch.no_grad()
def cached_differs() -> Measured:
    """Return how far logits with a cache are from those of the full pass, over relative biases."""
    shape = TransformerShape(50, 32, 4, 64, encoder_layers=0, decoder_layers=2)
    ids = torch.randint(50, (2, 40), generator=torch.Generator().manual_seed(0))
    worst = 0.0
    for name in RELATIVE:
        model = LanguageModel(shape, build(name, shape.stack_shape(causal=True)), causal=True)
        initialize(model, 1)
        model.eval()
        cache = shape.new_cache(2)
        step: Callable[[int], torch.Tensor] = lambda i: model(ids[:, i : i + 1], cache=cache)  # noqa: B023, E731
        hidden = torch.cat([step(i) for i in range(ids.shape[1])], 1)
        worst = max(worst, float((model.logits(hidden) - model.logits(model(ids))).abs().max()))
    return exactly(worst, "of a logit")
