"""The claims of articles about position encodings, each with the one test that judges it."""

from __future__ import annotations

from functools import partial

from claims_evidence import (
    BLEU,
    MASKED,
    TEXT,
    Claim,
    Measured,
    above,
    alike,
    below,
    gain,
    harmless,
    loss_of,
    size,
)
from claims_measures import (
    COST,
    RELATIVE,
    SIZES,
    bound_of_scores,
    cached_differs,
    fall_of_bound,
    fall_of_scores,
    farthest_peak,
    gain_in_percent,
    gain_on_tasks,
    gain_over_best,
    integers_gradient,
    least_sharpening,
    least_single_frequency,
    near_and_far,
    order_without_positions,
    parameters,
    perplexity_ratio,
    positions_kept_out,
    rule_gain,
    smallest_gain,
    spread_of_seeds,
    steps_saved,
    time_ratio,
    tokens_lost,
)

from ropewalk.lab.report.formats import format_count, format_number

TUTORIALS = "articles and videos that introduce rotary positions"
REPORT = "a report that trained The Annotated Transformer with rotary on Multi30k"
ROFORMER = "RoFormer (arXiv 2104.09864)"
ALIBI = "ALiBi (arXiv 2108.12409)"
FLEETWOOD = "C. Fleetwood, “You could have designed state of the art positional encoding” (2024)"
FLICKR, FLICKR_17 = "test_2016_flickr", "test_2017_flickr"
NATS, POINTS, BLEU_POINTS = 0.01, 2.0, 1.0  # margins
SAME_TIME, SAME_PERPLEXITY = 1.1, 1.05

BETTER = "supported if better; contradicted if worse, or equal within the margin"
WORSE = "supported if worse; contradicted if better, or equal within the margin"


def numbers(found: Measured, digits: int = 3) -> str:
    """Return a number with its interval as text."""
    value, low, high = (format_number(x, digits) for x in (found.value, found.low, found.high))
    if not found.seeds:
        return f"{value} {found.unit}"
    of = format_count(found.seeds, "round" if found.link == COST else "seed")
    return f"{value} {found.unit} ({low} to {high}, {of})"


def others(digits: int, *parts: tuple[str, str, str, str]) -> tuple[str, ...]:
    """Return sentences with the gains of encodings over others, which decide nothing."""
    return tuple(
        f"`{name}` gains {numbers(gain(folder, name, other, split), digits)} over `{other}` on "
        f"{folder}, {split}."
        for folder, name, other, split in parts
    )


def _times() -> tuple[str, ...]:
    return tuple(f"`{name}`: {numbers(time_ratio(name), 2)}." for name in RELATIVE)


def _bounds() -> tuple[str, ...]:
    bounds = ", ".join(f"{bound_of_scores(n):.1f} at {n}" for n in (1, 32, 256))
    return (
        f"The bound, for 128 dimensions: {bounds}.",
        f"It bounds all scores and says nothing of one: a key can be chosen that scores highest at "
        f"distance {farthest_peak()} (Barbero et al., arXiv 2410.06205).",
    )


def _sizes() -> tuple[str, ...]:
    return tuple(
        f"{parameters(unit)}: {numbers(gain(unit, 'rotary', 'sinusoidal'))}." for unit in SIZES
    )


CLAIMS = (
    Claim(
        "translation", "Rotary translates better than sinusoids.",
        f"{ROFORMER}, table 1 (27.5 against 27.3 BLEU); {TUTORIALS}",
        "Gain of `rotary` over `sinusoidal` on Multi30k, test 2016", f"{BETTER} (1 BLEU)",
        above(0.0, BLEU_POINTS), partial(gain, BLEU, "rotary", "sinusoidal", FLICKR),
        partial(others, 1, (BLEU, "rotary", "sinusoidal", FLICKR_17),
            ("default", "rotary", "sinusoidal", "test"),
        ),
    ),
    Claim(
        "eight-percent", "Rotary translates 8 % better than sinusoids.",
        f"{REPORT} (+8.01 % on five sentences)",
        "Gain of `rotary` on Multi30k, test 2016, in % of the BLEU of `sinusoidal`",
        "supported if the interval lies within 1 point of 8.01 %; contradicted if it excludes it",
        size(8.01, 1.0), partial(gain_in_percent, FLICKR),
        lambda: (f"Test 2017: {numbers(gain_in_percent(FLICKR_17), 1)}.",),
    ),
    Claim(
        "faster-masked", "Rotary trains faster on masked tokens.", f"{ROFORMER}, figure 3, left",
        "Steps that `rotary` saves to the final validation loss of `sinusoidal`",
        "supported above 0; contradicted below 5 %; losses are known at every tenth of the steps",
        above(0.0, 5.0), steps_saved,
        partial(
            others, 3, (MASKED, "rotary", "sinusoidal", "x1"), (MASKED, "rotary", "learned", "x1")
        ),
    ),
    Claim(
        "faster-linear", "In linear attention, rotary reaches a lower loss.",
        f"{ROFORMER}, figure 3, right (rotation before or after the feature map)",
        "Gain of `rotary`, rotated after the feature map, over `sinusoidal`",
        f"{BETTER} (0.01 nats)", above(0.0, NATS),
        partial(gain, "performer", "rotary", "sinusoidal"),
        partial(others, 3, ("performer-before", "rotary", "sinusoidal", "x1"),
            ("performer-before", "sinusoidal+rotary", "sinusoidal", "x1"),
        ),
    ),
    Claim(
        "linear-works", "Rotation works in linear attention.", f"{ROFORMER}, section 3.3, eq. 19",
        "Gain of `rotary`, rotated after the feature map, over no positions",
        f"{BETTER} (0.01 nats)", above(0.0, NATS), partial(gain, "performer", "rotary", "none"),
    ),
    Claim(
        "sharper", "With rotary, attention gets sharper from layer to layer.", REPORT,
        "Least fall of entropy from a layer to the next, in the encoder",
        "supported above 0; contradicted below 0", above(0.0), least_sharpening,
    ),
    Claim(
        "bias-slow", "Relative biases are slow at long sequences.",
        f"{ALIBI}, section 2.2, about T5's; {TUTORIALS}",
        "A training step with T5's bias at 8,192 tokens, as implemented here",
        f"supported above {SAME_TIME} times that without positions; contradicted below",
        above(SAME_TIME), partial(time_ratio, "t5"), _times,
    ),
    Claim(
        "bias-cache", "Relative biases do not work with a key/value cache.", TUTORIALS,
        "Largest difference of cached logits from the full pass, of eight encodings",
        "supported above 0.001; contradicted below; random weights", above(0.001), cached_differs,
    ),
    Claim(
        "rotary-cheap", "Rotary costs little time.", f"EleutherAI's article (2021); {TUTORIALS}",
        "A training step with `rotary` at 8,192 tokens",
        f"supported below {SAME_TIME} times that without positions; contradicted above",
        below(SAME_TIME), partial(time_ratio, "rotary"),
    ),
    Claim(
        "t5-any-length", "T5's bias scales to any length.", TUTORIALS,
        "`t5(distance=64)` at 8 times the trained length",
        f"supported below {SAME_PERPLEXITY} times the perplexity; contradicted above",
        below(SAME_PERPLEXITY), partial(perplexity_ratio, "t5(distance=64)"),
        lambda: (f"`t5` with its default distance: {numbers(perplexity_ratio('t5'), 2)}.",),
    ),
    Claim(
        "alibi-any-length", "ALiBi extrapolates.", ALIBI,
        "`alibi` at 8 times the trained length",
        f"supported below {SAME_PERPLEXITY} times the perplexity; contradicted above",
        below(SAME_PERPLEXITY), partial(perplexity_ratio, "alibi"),
    ),
    Claim(
        "longer-contexts", "Rotary works at 8 times the trained length.",
        f"{TUTORIALS}; doubted by {ALIBI}, section 2.2",
        "`rotary` at 8 times the trained length",
        f"supported below {SAME_PERPLEXITY} times the perplexity; contradicted above",
        below(SAME_PERPLEXITY), partial(perplexity_ratio, "rotary"),
    ),
    Claim(
        "xpos", "xPos extrapolates better than rotary.", "Sun et al. (arXiv 2212.10554)",
        "Gain of `xpos` over `rotary` at 8 times the trained length", f"{BETTER} (0.01 nats)",
        above(0.0, NATS), partial(gain, TEXT, "xpos", "rotary", "x8"),
        lambda: (f"`xpos` at 8 times the length: {numbers(perplexity_ratio('xpos'), 2)}.",),
    ),
    Claim(
        "rules-untrained", "YaRN lowers the loss beyond the trained length, without training.",
        "NTK-aware scaling (2023), YaRN (arXiv 2309.00071)",
        "Gain of YaRN over plain `rotary` at 8 times the trained length", f"{BETTER} (0.01 nats)",
        above(0.0, NATS), partial(rule_gain, "YaRN"),
        lambda: tuple(
            f"{rule}: {numbers(rule_gain(rule))}."
            for rule in ("DynamicNTK", "NTKAware", "Llama3", "Linear")
        ),
    ),
    Claim(
        "none-generalizes", "Models without positions generalize best to longer sequences.",
        "Kazemnejad et al. (arXiv 2305.19466)",
        "Gain of `none` over the best encoding at twice the trained length, seven generated tasks",
        f"{BETTER} (2 points)", above(0.0, POINTS), partial(gain_over_best, "none"),
        lambda: tuple(
            f"`none` gains {numbers(gain_on_tasks('none', other), 1)} over `{other}`."
            for other in ("t5", "alibi", "rotary", "sinusoidal")
        ),
    ),
    Claim(
        "decay-trained", "In trained models, scores fall with distance.",
        f"{ROFORMER}, section 3.4.3; {TUTORIALS}",
        "Mean score of the nearest eighth of distances, minus that of the farthest",
        "supported above 0; contradicted below 0", above(0.0), fall_of_scores,
    ),
    Claim(
        "decay-bound", "Rotation bounds scores, and the bound falls with distance.",
        f"{ROFORMER}, section 3.4.3", "The bound at distance 256",
        "supported below 1; contradicted above", below(1.0), fall_of_bound, _bounds,
    ),
    Claim(
        "consistent", "Training with rotary is more consistent.", TUTORIALS,
        "Spread of the losses of `rotary` over seeds, relative to `sinusoidal`",
        "supported below 1; contradicted above; the interval is that of an F test",
        below(1.0), spread_of_seeds,
    ),
    Claim(
        "learned-sinusoidal", "Learned positions do as well as sinusoids.",
        "Vaswani et al. (arXiv 1706.03762), section 3.5, table 3, row E",
        "Gain of `learned` over `sinusoidal` on Multi30k, test 2016",
        "supported if equal within 1 BLEU; contradicted if different and not within 1 BLEU",
        alike(BLEU_POINTS), partial(gain, BLEU, "learned", "sinusoidal", FLICKR),
        lambda: others(
            3,
            (TEXT, "learned", "sinusoidal", "x1"), (MASKED, "learned", "sinusoidal", "x1")
        ),
    ),
    Claim(
        "near-far", "With sinusoids, 1 and 2 are as far apart as 2 and 500.", TUTORIALS,
        "The vectors of 2 and 500, in 128 dimensions, relative to those of 1 and 2",
        "supported within 10 % of 1; contradicted elsewhere; trained tables are not tested",
        size(1.0, 0.1), near_and_far,
    ),
    Claim(
        "integers-post-norm", "Adding integers makes training explode.",
        f"{FLEETWOOD}; {TUTORIALS}",
        "Largest gradient in a post-norm model, relative to sinusoids",
        "supported above 2 times; contradicted below; in a pre-norm model, LayerNorm removes the "
        "constant that is added, so that nothing is tested", above(2.0),
        partial(integers_gradient, "post"),
        lambda: (f"Pre-norm: {numbers(integers_gradient('pre'), 2)}.",),
    ),
    Claim(
        "bits", "Bits of the position are harder to learn from than sinusoids.",
        f"{FLEETWOOD}; {TUTORIALS}", "Loss of `binary` above that of `sinusoidal`, on tales",
        f"{WORSE} (0.01 nats)", above(0.0, NATS), partial(loss_of, TEXT, "binary", "sinusoidal"),
    ),
    Claim(
        "order-causal", "Without positions, a causal model cannot know where a token is.",
        TUTORIALS,
        "How well a linear map reads the position after the last layer, without positions",
        "supported below an R² of 0.1; contradicted above", below(0.1), order_without_positions,
    ),
    Claim(
        "order-masked", "Without positions, a masked model loses the order.", TUTORIALS,
        "Loss of `none` above that of `sinusoidal`, on masked tokens", f"{WORSE} (0.01 nats)",
        above(0.0, NATS), partial(loss_of, MASKED, "none", "sinusoidal"),
    ),
    Claim(
        "positions-stay", "Added positions stay in the hidden states; rotation keeps them out.",
        FLEETWOOD,
        "What a linear map reads of the position after the last layer, sinusoids minus rotary",
        "supported above 0.1 of R²; contradicted below", above(0.1), positions_kept_out,
    ),
    Claim(
        "spoils-meaning", "Added positions spoil what a token means.", f"{FLEETWOOD}; {TUTORIALS}",
        "Vectors nearest to their own token where positions are added, rotary minus sinusoids",
        "supported above 0; contradicted below 2 points", above(0.0, POINTS),
        partial(tokens_lost, 0),
        lambda: (f"After the first layer: {numbers(tokens_lost(1), 1)}.",),
    ),
    Claim(
        "values-unrotated", "Values should not rotate, for longer sequences.",
        f"{ALIBI}, section 2.2; {TUTORIALS}",
        "Loss of `rotary(values=absolute)` above that of `rotary`, at 8 times the trained length",
        f"{WORSE} (0.01 nats)", above(0.0, NATS),
        partial(loss_of, "claims/values-causal", "rotary(values=absolute)", "rotary", "x8"),
        lambda: (
            *others(
                3,
                ("claims/values-causal", "rotary(values=True)", "rotary", "x8"),
                ("claims/values-causal", "rotary(values=absolute)", "rotary", "x1"),
                ("claims/values-causal", "rotary(values=True)", "rotary", "x1"),
            ),
            "`values=True` rotates the output back.",
        ),
    ),
    Claim(
        "clip-harmless", "Clipping distances at 16 is harmless.",
        "Shaw et al. (arXiv 1803.02155), section 3.2",
        "Loss of `shaw` clipped at 16 above that at 64",
        "supported if the interval is below 0.01 nats; contradicted if above 0", harmless(NATS),
        partial(loss_of, "claims/clip-causal", "shaw(distance=16)", "shaw(distance=64)"),
        lambda: others(
            3,
            ("claims/clip-causal", "shaw(distance=4)", "shaw(distance=64)", "x1"),
            ("claims/clip-copy", "shaw(distance=16)", "shaw(distance=64)", "x1"),
        ),
    ),
    Claim(
        "every-layer", "Positions should enter at every layer.",
        f"{ALIBI}, section 2.2; {TUTORIALS}",
        "Loss of rotation in only the first of three layers above that in all",
        f"{WORSE} (0.01 nats)",
        above(0.0, NATS), partial(loss_of, "claims/layers-causal", "rotary_only", "rotary"),
        lambda: others(
            3,
            ("claims/layers-causal", "rotary_only(layer=last)", "rotary", "x1"),
            ("claims/layers-masked", "rotary_only", "rotary", "x1"),
        ),
    ),
    Claim(
        "many-frequencies", "A rope needs many frequencies.", TUTORIALS,
        "Loss of the best single frequency for all pairs, of five, above that of many",
        f"{WORSE} (0.01 nats)", above(0.0, NATS), least_single_frequency,
        lambda: others(
            3,
            ("claims/frequencies-causal", "rotary(frequency=1.0)", "rotary", "x1"),
            ("claims/frequencies-masked", "rotary(frequency=0.1)", "rotary", "x1"),
        ),
    ),
    Claim(
        "sizes", "Rotary is better than sinusoids at each of three small sizes.",
        "EleutherAI, “Rotary Embeddings: A Relative Revolution” (2021), to 6 billion parameters",
        "Gain of `rotary` over `sinusoidal` on tales, at the least sure of three sizes",
        f"{BETTER} (0.01 nats)", above(0.0, NATS), smallest_gain, _sizes,
    ),
)  # fmt: skip
