"""The claims of articles about position encodings: text, source, and the rule that decides."""

from __future__ import annotations

from typing import NamedTuple

TUTORIALS = "articles and videos that introduce rotary positions"
REPORT = "a report that trained The Annotated Transformer with rotary on Multi30k"
ROFORMER = "RoFormer (arXiv 2104.09864)"
ALIBI = "ALiBi (arXiv 2108.12409, section 2.2)"
FLEETWOOD = "C. Fleetwood, “You could have designed state of the art positional encoding” (2024)"


class Claim(NamedTuple):
    """A claim, its source, and the rule by which tests count for or against it."""

    says: str
    source: str
    test: str


BETTER = "a shown difference in the claimed direction is for it, in the other direction against it"
EXPLODES = (
    "Largest gradient before clipping, divided by that of `sinusoidal` with the same seed, and the "
    "final validation loss. For it if, in every seed, the gradient is 10 times as large, the loss "
    "is twice as high, or training diverged; against it if, in every seed, the gradient is at most "
    "2 times as large and the loss less than twice as high. One small model."
)

#: In the order of the page; the evidence has the same keys.
CLAIMS = {
    "translation": Claim(
        "Rotary beats absolute positions in translation.",
        f"{ROFORMER}, table 1 (27.5 against 27.3 BLEU); {TUTORIALS}",
        f"BLEU of `rotary` compared with `sinusoidal`, and of `learned` compared with `rotary`: "
        f"{BETTER}. The last lines, without a mark, test `learned` the other way round: Holm's "
        f"correction then counts other comparisons. If these lines counted instead, the verdict "
        f"could be another. Sentences longer than those of training do not count.",
    ),
    "eight-percent": Claim(
        "… and by 8 % of BLEU.",
        f"{REPORT} (+8.01 % on five sentences)",
        "Interval of the gain on Multi30k's test sets, in % of the mean of `sinusoidal`: for it if "
        "the interval contains 8.01 % but not 0, against it if 8.01 % is outside. The line "
        "`default` (built-in phrases) is there for comparison.",
    ),
    "faster-masked": Claim(
        "Rotary trains faster than absolute positions on masked tokens.",
        f"{ROFORMER}, figure 3 left",
        "Share of the steps after which each seed of `rotary` first reaches the mean final "
        "validation loss of the other encoding: for it if every seed needs less than the full "
        "training, against it if none does. Losses are known only where validation ran. There is "
        "no significance test.",
    ),
    "faster-linear": Claim(
        "In linear attention, rotary reaches a lower loss than sinusoids.",
        f"{ROFORMER}, figure 3 right (probably made with rotation before the feature map)",
        f"Final loss compared with `sinusoidal`, with rotation after the feature map (eq. 19) and "
        f"before it: {BETTER}. Speed is not tested.",
    ),
    "sharper": Claim(
        "With rotary, attention gets sharper from layer to layer.",
        REPORT,
        "Number of seeds whose entropy, as a share of the highest possible, falls from each layer "
        "to the next, with and without rotation in cross-attention: for it if these are more seeds "
        "than chance explains (p < 0.05 after Holm), against it if it rises in more seeds than "
        "chance explains.",
    ),
    "sharper-why": Claim(
        "… and that is why it translates better.",
        REPORT,
        "Looks at encodings that are shown to be better on test_2016_flickr, and in them at seeds "
        "whose last layer is no sharper than the first in all three kinds of attention at once. "
        "Against it if one of these seeds has more BLEU than every seed of `sinusoidal`. Nothing "
        "can count for it.",
    ),
    "bias-slow": Claim(
        "Relative biases are slow at long sequences.",
        f"{ALIBI}, about T5's bias; {TUTORIALS}",
        "Time of a training step at the longest length, relative to `none`, as implemented here: "
        "the range of five rounds, in turn. For it if it is above all encodings that only act on "
        "embeddings in the same round, in all five; against it if it is below all of these in all "
        "five. (They do not change attention, and show the noise of timing. No significance test.) "
        "`shaw`, `transformer_xl`, `deberta` and `cope` do more than add a bias, and count too.",
    ),
    "bias-cache": Claim(
        "… and they get in the way of a key/value cache.",
        TUTORIALS,
        "Time to decode a token with a cache of the longest length, relative to `none`, as "
        "implemented here: the range of five rounds, in turn. For it if it is above all encodings "
        "that only act on embeddings in the same round, in all five; against it if it is below all "
        "of these in all five. (No significance test.)",
    ),
    "t5-any-length": Claim(
        "T5's bias scales to any length.",
        TUTORIALS,
        "`t5(distance=64)` at 8 times the trained length. That length is 64, so training reaches "
        "all buckets. For it if perplexity is at most 1.05 times that at the trained length in "
        "every seed, against it if it is at least 1.2 times in every seed.",
    ),
    "decay-trained": Claim(
        "Scores decay with distance up to the farthest keys, in trained models.",
        f"{ROFORMER}, section 3.4.3; {TUTORIALS}",
        "Mean scores of `rotary` by eighths of the distance (from 1 on): for it if the farthest "
        "eighth is the lowest in every layer and seed, against it if in none. Scores that fall and "
        "rise again at the end count against it, even if the farthest are lower than the nearest. "
        "Only the first keys of a window are so far away, so distance and a place at the beginning "
        "are mixed.",
    ),
    "decay-rotation": Claim(
        "… and it is the rotation that makes them decay.",
        f"{ROFORMER}, section 3.4.3; doubted by Barbero et al. (arXiv 2410.06205)",
        "Mean score of the nearest eighth minus the farthest, without training. Random vectors: "
        "for it if above 0 by 3 standard errors. Vectors of ones: for it if above 0. Against it "
        "if a key can be chosen for which it is below 0, a construction as in Barbero et al. "
        "RoFormer derives an upper bound that falls, which this row does not test. The mean "
        "score of independent random vectors is 0 at every distance, so nothing can fall there.",
    ),
    "learned-sinusoidal": Claim(
        "Learned positions do as well as sinusoids.",
        "Vaswani et al. (arXiv 1706.03762, section 3.5, table 3 row E)",
        "Score compared with `sinusoidal`: a shown difference in either direction is against it; "
        "no shown difference is for it if the interval stays within 0.5 BLEU or 0.01 of loss. "
        "Generated tasks do not count.",
    ),
    "near-far": Claim(
        "With absolute positions, 1 and 2 are as far apart as 2 and 500.",
        TUTORIALS,
        "Distance between the sinusoids of 2 and 500, divided by that of 1 and 2: for it if at "
        "most 1.1, against it if at least 1.5. Trained tables are not tested.",
    ),
    "integers-pre-norm": Claim(
        "Adding integer positions makes training diverge in a pre-norm model.",
        f"{FLEETWOOD}; {TUTORIALS}",
        EXPLODES,
    ),
    "integers-post-norm": Claim(
        "… and in a post-norm model, as the original transformer is.",
        f"{FLEETWOOD}; {TUTORIALS}",
        f"{EXPLODES} Positions divided by 512 (`integer(length=512)`) are there for comparison.",
    ),
    "bits-jumpy": Claim(
        "Bits of the position are jumpy, and so harder to learn from than sinusoids.",
        f"{FLEETWOOD}; {TUTORIALS}",
        "Largest step between neighbors divided by the smallest: for it if at least 2. Loss of "
        f"`binary` compared with `sinusoidal` at the trained length on text, and share of correct "
        f"answers on generated tasks: {BETTER}. At 8 times the length both fail, so that number "
        f"does not count. Whether steps are the cause is not tested.",
    ),
    "positions-stay": Claim(
        "Added positions stay in the hidden states; rotation keeps them out.",
        FLEETWOOD,
        "R² on unseen windows of a linear map from hidden states to positions (below 0: worse than "
        "predicting the mean), at the input and after each layer, all seeds. For it: `sinusoidal` "
        "and `learned` always above both `none` and `rotary` at the same place, and `rotary` at "
        "most 0.1. Against it: always below `rotary`, or `rotary` at least 0.5. (`none` has no "
        "positions, but the causal mask lets its layers count.)",
    ),
    "spoils-meaning": Claim(
        "… and so added positions spoil what a token means.",
        f"{FLEETWOOD}; {TUTORIALS}",
        "Share of vectors whose nearest embedding is that of their own token, at the input of the "
        "first layer and after it: against it if 99 % or more with `sinusoidal` in every seed and "
        "both places; for it if every seed is at least 2 points below every seed of `rotary` in "
        "both. Of added positions, only sinusoids are tested.",
    ),
    "values-unrotated": Claim(
        "Values should not rotate.",
        f"{ALIBI}; {TUTORIALS}",
        f"Loss with rotated values at the trained length, compared with `rotary`: {BETTER}. With "
        f"`values=True` the output is rotated back, with `values=absolute` it is not. Longer "
        f"windows, without a mark, do not count: the claim is not about extrapolation.",
    ),
    "clip-harmless": Claim(
        "Clipping distances at 16 is harmless.",
        "Shaw et al. (arXiv 1803.02155, section 3.2); T5 (arXiv 1910.10683, section 2.1)",
        "Score with clipped distances, compared with all distances: against it if shown to be "
        "worse; for it if shown to be better, or if no difference is shown and the interval stays "
        "within 0.01 of loss or 2 % of answers. "
        "Clipping at 4 is there for comparison, and so is copying, where the copied letter is at "
        "most 11 tokens away. T5's clipping, at 128, is not tested.",
    ),
    "every-layer": Claim(
        "Positions should enter at every layer, not at the first or the last alone.",
        f"{ALIBI}; {TUTORIALS}",
        f"Loss with rotation in only the first of three layers (`rotary_only`) or only the last, "
        f"compared with `rotary`: {BETTER}. Rotation in two layers, or in the middle one alone, is "
        f"not tested, nor are other encodings.",
    ),
    "many-frequencies": Claim(
        "A rope needs many frequencies.",
        TUTORIALS,
        "Loss with one frequency for all pairs, compared with `rotary`, at the trained length. At "
        "8 times it plain `rotary` fails, so that number does not count. For it if a "
        "difference is shown and the mean is more than 0.01 higher. Against it if a difference is "
        "shown and the mean is more than 0.01 lower, or if no difference is shown and the "
        "interval stays within 0.01. A shown difference of at most 0.01 decides nothing.",
    ),
    "linear-works": Claim(
        "Rotation works with linear attention (Performer, rotation after the feature map).",
        f"{ROFORMER}, section 3.3 and eq. 19",
        f"Loss of `rotary` compared with `none`: {BETTER}.",
    ),
    "longer-contexts": Claim(
        "Rotary works at 8 times the trained length.",
        f"{TUTORIALS}; doubted by {ALIBI}",
        "Plain `rotary` without a scaling rule. For it, in every seed: perplexity at most 1.05 "
        "times that at the trained length, or at least 90 % exact. Against it, in every seed: "
        "perplexity at least 1.2 times, or at most 50 % exact.",
    ),
    "sizes": Claim(
        "With softmax attention, rotary is better than sinusoids at every size.",
        "EleutherAI, “Rotary Embeddings: A Relative Revolution” (2021), up to 6 billion parameters",
        f"Loss compared with `sinusoidal`, at three sizes of 0.2 to 3.7 million parameters: "
        f"{BETTER}. Only softmax attention and the next token of tales count: in linear attention "
        f"with rotation after the feature map, the opposite is shown (see above), and on generated "
        f"tasks at the trained length nothing is. The learning rate is 0.003, and 0.002 for the "
        f"largest. The smallest was trained on twice as much text; the middle one was tested on "
        f"eight times as many windows as the others.",
    ),
}
