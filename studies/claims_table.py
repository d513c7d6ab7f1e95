"""The claims of articles about position encodings, each with the one test that judges it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from claims_evidence import (
    BLEU,
    MASKED,
    TEXT,
    Claim,
    Further,
    Measured,
    above,
    alike,
    below,
    gain,
    harmless,
    loss_of,
    opposite,
    size,
)
from claims_measures import (
    RELATIVE,
    RULES,
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
    learned_far_apart,
    least_sharpening,
    least_single_frequency,
    order_without_positions,
    parameters,
    perplexity_ratio,
    positions_kept_out,
    reference_loss,
    reference_ratio,
    reference_shuffled,
    rule_gain,
    sinusoids_far_apart,
    smallest_gain,
    spread_of_seeds,
    steps_saved,
    time_ratio,
    tokens_lost,
)

ROTARY = "Rotary against sinusoids"
TIME = "Time and memory"
LENGTH = "Beyond the trained length"
ROPE = "Parts of a rope"
ADDED = "Positions that are added"
NONE = "Without positions"

TUTORIALS = "articles and videos that introduce rotary positions"
REPORT = "a report that trained The Annotated Transformer with rotary on Multi30k"
ROFORMER = "RoFormer (arXiv 2104.09864)"
ALIBI = "ALiBi (arXiv 2108.12409)"
FLEETWOOD = "C. Fleetwood, “You could have designed state of the art positional encoding” (2024)"
FLICKR, FLICKR_17 = "test_2016_flickr", "test_2017_flickr"
NATS, POINTS, BLEU_POINTS = 0.01, 2.0, 1.0  # margins
SAME_TIME, SAME_PERPLEXITY = 1.1, 1.05
SAME_TOKENS = "the same tokens in windows of 8 times the length"

BETTER = "supported if better; contradicted if worse, or equal within the margin"
WORSE = "supported if worse; contradicted if better, or equal within the margin"

Parts = tuple[str, str, str, str]  # folder, encoding, other encoding, split


def gains(*parts: Parts) -> Callable[[], tuple[Further, ...]]:
    """Return the gains of encodings over others as further numbers."""
    return lambda: tuple(
        Further(f"`{name}` over `{other}`, {folder} {split}", gain(folder, name, other, split))
        for folder, name, other, split in parts
    )


def losses(*parts: Parts) -> Callable[[], tuple[Further, ...]]:
    """Return how much worse encodings are than others as further numbers."""
    return lambda: tuple(
        Further(f"`{name}` above `{other}`, {folder} {split}", loss_of(folder, name, other, split))
        for folder, name, other, split in parts
    )


def on_real_text(*parts: tuple[str, Callable[[], Measured]]) -> tuple[Further, ...]:
    """Return numbers of the reference experiment as further numbers."""
    return tuple(Further(f"On real text, {label}", measure()) for label, measure in parts)


CLAIMS = (
    Claim(
        ROTARY, "translation", "Rotary translates better than sinusoids.",
        f"{ROFORMER}, table 1 (27.5 against 27.3 BLEU); {TUTORIALS}",
        "Gain of `rotary` over `sinusoidal` on Multi30k, test 2016", f"{BETTER} (1 BLEU)",
        above(0.0, BLEU_POINTS), partial(gain, BLEU, "rotary", "sinusoidal", FLICKR),
        gains((BLEU, "rotary", "sinusoidal", FLICKR_17),
            ("default", "rotary", "sinusoidal", "test"),
            ("default", "rotary", "sinusoidal", "long"),
        ),
    ),
    Claim(
        ROTARY, "eight-percent", "Rotary translates 8 % better than sinusoids.",
        f"{REPORT} (+8.01 % on five sentences)",
        "Gain of `rotary` on Multi30k, test 2016, in % of the BLEU of `sinusoidal`",
        "supported if the interval lies within 1 point of 8.01 %; contradicted if it excludes it",
        size(8.01, 1.0), partial(gain_in_percent, FLICKR),
        lambda: (Further("Test 2017", gain_in_percent(FLICKR_17)),),
    ),
    Claim(
        ROTARY, "faster-masked", "Rotary trains faster on masked tokens.",
        f"{ROFORMER}, figure 3, left",
        "Steps that `rotary` saves to the final validation loss of `sinusoidal`",
        "supported above 0; contradicted below 5 %; losses are known at every tenth of the steps",
        above(0.0, 5.0), steps_saved,
        gains((MASKED, "rotary", "sinusoidal", "x1"), (MASKED, "rotary", "learned", "x1")),
    ),
    Claim(
        ROTARY, "faster-linear", "In linear attention, rotary reaches a lower loss.",
        f"{ROFORMER}, figure 3, right (rotation before or after the feature map)",
        "Gain of `rotary`, rotated after the feature map, over `sinusoidal`",
        f"{BETTER} (0.01 nats)", above(0.0, NATS),
        partial(gain, "performer", "rotary", "sinusoidal"),
        gains(("performer-before", "rotary", "sinusoidal", "x1"),
            ("performer-before", "sinusoidal+rotary", "sinusoidal", "x1"),
        ),
    ),
    Claim(
        ROTARY, "linear-works", "Rotation works in linear attention.",
        f"{ROFORMER}, section 3.3, eq. 19",
        "Gain of `rotary`, rotated after the feature map, over no positions",
        f"{BETTER} (0.01 nats)", above(0.0, NATS), partial(gain, "performer", "rotary", "none"),
    ),
    Claim(
        ROTARY, "sizes", "Rotary is better than sinusoids at each of three small sizes.",
        "EleutherAI, “Rotary Embeddings: A Relative Revolution” (2021), to 6 billion parameters",
        "Gain of `rotary` over `sinusoidal` on tales, at the least sure of three sizes",
        f"{BETTER} (0.01 nats)", above(0.0, NATS), smallest_gain,
        lambda: tuple(
            Further(parameters(unit), gain(unit, "rotary", "sinusoidal")) for unit in SIZES
        ),
    ),
    Claim(
        ROTARY, "consistent", "Training with rotary is more consistent.", TUTORIALS,
        "Spread of the losses of `rotary` over seeds, relative to `sinusoidal`",
        "supported below 1; contradicted above; the interval is that of an F test",
        below(1.0), spread_of_seeds,
    ),
    Claim(
        ROTARY, "sharper", "With rotary, attention gets sharper from layer to layer.", REPORT,
        "Least fall of entropy from a layer to the next, in the encoder",
        "supported above 0; contradicted below 0", above(0.0), least_sharpening,
    ),
    Claim(
        TIME, "rotary-cheap", "Rotary costs little time.",
        f"EleutherAI's article (2021); {TUTORIALS}",
        "A training step with `rotary` at 8,192 tokens",
        f"supported below {SAME_TIME} times that without positions; contradicted above",
        below(SAME_TIME), partial(time_ratio, "rotary"),
    ),
    Claim(
        TIME, "bias-slow", "Relative biases are slow at long sequences.",
        f"{ALIBI}, section 2.2, about T5's; {TUTORIALS}",
        "A training step with T5's bias at 8,192 tokens, as implemented here",
        f"supported above {SAME_TIME} times that without positions; contradicted below",
        above(SAME_TIME), partial(time_ratio, "t5"),
        lambda: tuple(Further(f"`{name}`", time_ratio(name)) for name in RELATIVE if name != "t5"),
    ),
    Claim(
        TIME, "bias-cache", "Relative biases do not work with a key/value cache.", TUTORIALS,
        "Largest difference of cached logits from the full pass, of eight encodings",
        "supported above 0.001; contradicted below; random weights", above(0.001), cached_differs,
        notes=("The time of a step with a cache is not tested.",),
    ),
    Claim(
        LENGTH, "longer-contexts", "Rotary works at 8 times the trained length.",
        f"{TUTORIALS}; doubted by {ALIBI}, section 2.2",
        "`rotary` at 8 times the trained length",
        f"supported below {SAME_PERPLEXITY} times the perplexity; contradicted above",
        below(SAME_PERPLEXITY), partial(perplexity_ratio, "rotary"),
        lambda: on_real_text((SAME_TOKENS, partial(reference_ratio, "rotary"))),
    ),
    Claim(
        LENGTH, "alibi-any-length", "ALiBi extrapolates.", ALIBI,
        "`alibi` at 8 times the trained length",
        f"supported below {SAME_PERPLEXITY} times the perplexity; contradicted above",
        below(SAME_PERPLEXITY), partial(perplexity_ratio, "alibi"),
        lambda: on_real_text((SAME_TOKENS, partial(reference_ratio, "alibi"))),
    ),
    Claim(
        LENGTH, "t5-any-length", "T5's bias scales to any length.", TUTORIALS,
        "`t5(distance=64)` at 8 times the trained length",
        f"supported below {SAME_PERPLEXITY} times the perplexity; contradicted above",
        below(SAME_PERPLEXITY), partial(perplexity_ratio, "t5(distance=64)"),
        lambda: (Further("`t5` with its default distance", perplexity_ratio("t5")),),
    ),
    Claim(
        LENGTH, "xpos", "xPos extrapolates better than rotary.", "Sun et al. (arXiv 2212.10554)",
        "Gain of `xpos` over `rotary` at 8 times the trained length", f"{BETTER} (0.01 nats)",
        above(0.0, NATS), partial(gain, TEXT, "xpos", "rotary", "x8"),
        lambda: (Further("`xpos` at 8 times the length", perplexity_ratio("xpos")),),
    ),
    Claim(
        LENGTH, "rules-untrained",
        "YaRN lowers the loss beyond the trained length, without training.",
        "NTK-aware scaling (2023), YaRN (arXiv 2309.00071)",
        "Gain of YaRN over plain `rotary` at 8 times the trained length", f"{BETTER} (0.01 nats)",
        above(0.0, NATS), partial(rule_gain, "YaRN"),
        lambda: (
            *(
                Further(f"{rule} in place of YaRN", rule_gain(rule))
                for rule in ("DynamicNTK", "NTKAware", "Llama3", "Linear")
            ),
            *on_real_text(("YaRN", lambda: opposite(reference_loss("YaRN", 8, RULES)))),
        ),
    ),
    Claim(
        LENGTH, "none-generalizes", "Models without positions generalize best to longer sequences.",
        "Kazemnejad et al. (arXiv 2305.19466)",
        "Gain of `none` over the best encoding at twice the trained length, seven generated tasks",
        f"{BETTER} (2 points)", above(0.0, POINTS), partial(gain_over_best, "none"),
        lambda: (
            *(
                Further(f"over `{other}` alone", gain_on_tasks("none", other))
                for other in ("t5", "alibi", "rotary", "sinusoidal")
            ),
            *on_real_text(
                ("`none` over `rotary` at 8 times the length",
                    lambda: opposite(reference_loss("none", 8)))
            ),
        ),
    ),
    Claim(
        LENGTH, "values-unrotated", "Values should not rotate, for longer sequences.",
        f"{ALIBI}, section 2.2; {TUTORIALS}",
        "Loss of `rotary(values=absolute)` above that of `rotary`, at 8 times the trained length",
        f"{WORSE} (0.01 nats)", above(0.0, NATS),
        partial(loss_of, "claims/values-causal", "rotary(values=absolute)", "rotary", "x8"),
        losses(
            ("claims/values-causal", "rotary(values=True)", "rotary", "x8"),
            ("claims/values-causal", "rotary(values=absolute)", "rotary", "x1"),
            ("claims/values-causal", "rotary(values=True)", "rotary", "x1"),
        ),
        ("`values=True` rotates the output back.",),
    ),
    Claim(
        ROPE, "decay-bound", "Rotation bounds scores, and the bound falls with distance.",
        f"{ROFORMER}, section 3.4.3", "The largest bound at distances 256 to 4,096",
        "supported below 1; contradicted above", below(1.0), fall_of_bound,
        lambda: (
            *(Further(f"At {n}, for 128 dimensions", bound_of_scores(n)) for n in (1, 32, 256)),
            Further("The farthest a chosen key scores highest at (arXiv 2410.06205)",
                farthest_peak()),
        ),
        ("It bounds all scores and says nothing of a single one.",),
    ),
    Claim(
        ROPE, "decay-trained", "In trained models, scores fall with distance.",
        f"{ROFORMER}, section 3.4.3; {TUTORIALS}",
        "Mean score of the nearest eighth of distances, minus that of the farthest",
        "supported above 0; contradicted below 0", above(0.0), partial(fall_of_scores, "rotary"),
        lambda: (Further("In models without positions", fall_of_scores("none")),),
    ),
    Claim(
        ROPE, "many-frequencies", "A rope needs many frequencies.", TUTORIALS,
        "Loss of the best single frequency for all pairs, of five, above that of many",
        f"{WORSE} (0.01 nats)", above(0.0, NATS), least_single_frequency,
        losses(
            ("claims/frequencies-causal", "rotary(frequency=1.0)", "rotary", "x1"),
            ("claims/frequencies-masked", "rotary(frequency=0.1)", "rotary", "x1"),
        ),
    ),
    Claim(
        ROPE, "every-layer", "Positions should enter at every layer.",
        f"{ALIBI}, section 2.2; {TUTORIALS}",
        "Loss of rotation in only the first of three layers above that in all",
        f"{WORSE} (0.01 nats)",
        above(0.0, NATS), partial(loss_of, "claims/layers-causal", "rotary_only", "rotary"),
        lambda: (
            *losses(
                ("claims/layers-causal", "rotary_only(layer=last)", "rotary", "x1"),
                ("claims/layers-masked", "rotary_only", "rotary", "x1"),
            )(),
            *on_real_text(
                ("loss of rotation in three of four layers above that in all",
                    partial(reference_loss, "rotary_skipping", 1))
            ),
        ),
    ),
    Claim(
        ROPE, "clip-harmless", "Clipping distances at 16 is harmless.",
        "Shaw et al. (arXiv 1803.02155), section 3.2",
        "Loss of `shaw` clipped at 16 above that at 64",
        "supported if the interval is below 0.01 nats; contradicted if above 0", harmless(NATS),
        partial(loss_of, "claims/clip-causal", "shaw(distance=16)", "shaw(distance=64)"),
        losses(
            ("claims/clip-causal", "shaw(distance=4)", "shaw(distance=64)", "x1"),
            ("claims/clip-copy", "shaw(distance=16)", "shaw(distance=64)", "x1"),
        ),
    ),
    Claim(
        ADDED, "learned-sinusoidal", "Learned positions do as well as sinusoids.",
        "Vaswani et al. (arXiv 1706.03762), section 3.5, table 3, row E",
        "Gain of `learned` over `sinusoidal` on Multi30k, test 2016",
        "supported if equal within 1 BLEU; contradicted if different and not within 1 BLEU",
        alike(BLEU_POINTS), partial(gain, BLEU, "learned", "sinusoidal", FLICKR),
        gains((TEXT, "learned", "sinusoidal", "x1"), (MASKED, "learned", "sinusoidal", "x1")),
    ),
    Claim(
        ADDED, "near-far", "With learned positions, 1 and 2 are as far apart as 2 and 500.",
        TUTORIALS, "The trained vectors of 2 and 500, relative to those of 1 and 2",
        "supported within 10 % of 1; contradicted if the interval excludes 1", size(1.0, 0.1),
        learned_far_apart, lambda: (Further("With sinusoids", sinusoids_far_apart()),),
        ("The rows begin as random vectors, and were trained for 1,604 steps.",),
    ),
    Claim(
        ADDED, "integers-post-norm", "Adding integers makes training explode.",
        f"{FLEETWOOD}; {TUTORIALS}",
        "Largest gradient in a post-norm model, relative to sinusoids",
        "supported above 2 times; contradicted below", above(2.0),
        partial(integers_gradient, "post"),
        lambda: (Further("In a pre-norm model with RMSNorm", integers_gradient("rms")),),
        ("LayerNorm in a pre-norm model removes what is added, so that it tests nothing.",),
    ),
    Claim(
        ADDED, "bits", "Bits of the position are harder to learn from than sinusoids.",
        f"{FLEETWOOD}; {TUTORIALS}", "Loss of `binary` above that of `sinusoidal`, on tales",
        f"{WORSE} (0.01 nats)", above(0.0, NATS), partial(loss_of, TEXT, "binary", "sinusoidal"),
    ),
    Claim(
        ADDED, "positions-stay",
        "Added positions stay in the hidden states; rotation keeps them out.", FLEETWOOD,
        "What a linear map reads of the position after the last layer, sinusoids minus rotary",
        "supported above 0.1 of R²; contradicted below", above(0.1), positions_kept_out,
    ),
    Claim(
        ADDED, "spoils-meaning", "Added positions spoil what a token means.",
        f"{FLEETWOOD}; {TUTORIALS}",
        "Vectors nearest to their own token where positions are added, rotary minus sinusoids",
        "supported above 0; contradicted below 2 points", above(0.0, POINTS),
        partial(tokens_lost, 0), lambda: (Further("After the first layer", tokens_lost(1)),),
    ),
    Claim(
        NONE, "order-causal", "Without positions, a causal model cannot know where a token is.",
        TUTORIALS,
        "How well a linear map reads the position after the last layer, without positions",
        "supported below an R² of 0.1; contradicted above", below(0.1), order_without_positions,
        lambda: on_real_text(
            ("loss that a random order of the earlier tokens adds to `none`",
                partial(reference_shuffled, "none")),
            ("loss that it adds to `rotary`", partial(reference_shuffled, "rotary")),
        ),
        notes=("To know where a token is, is not to know the order of those before it.",),
    ),
    Claim(
        NONE, "order-masked", "Without positions, a masked model loses the order.", TUTORIALS,
        "Loss of `none` above that of `sinusoidal`, on masked tokens", f"{WORSE} (0.01 nats)",
        above(0.0, NATS), partial(loss_of, MASKED, "none", "sinusoidal"),
    ),
)  # fmt: skip
