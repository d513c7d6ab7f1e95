"""What articles say of position encodings: each claim, who says it, and what would decide it."""

from __future__ import annotations

from typing import NamedTuple

TUTORIALS = "articles and videos that introduce rotary positions"
REPORT = "a report that trained The Annotated Transformer with rotary on Multi30k"
ROFORMER = "RoFormer (arXiv 2104.09864)"
ALIBI = "ALiBi (arXiv 2108.12409, section 2.2)"
FLEETWOOD = "C. Fleetwood, “You could have designed state of the art positional encoding” (2024)"


class Claim(NamedTuple):
    """A claim, who makes it, and the tests that count for or against it."""

    says: str
    source: str
    test: str


BETTER = "a shown difference in that direction is for it, in the other against it"

#: In the order of the page; the evidence has the same keys.
CLAIMS = {
    "translation": Claim(
        "Rotary beats absolute positions in translation.",
        f"{ROFORMER}, table 1 (27.5 against 27.3 BLEU); {TUTORIALS}",
        f"BLEU of rotary against `sinusoidal` and `learned`: {BETTER}.",
    ),
    "eight-percent": Claim(
        "… and by 8 % of BLEU.",
        f"{REPORT} (+8.01 % on five sentences)",
        "The interval of the gain on Multi30k's test sets, in % of the mean of `sinusoidal`: for "
        "it if it holds 8.01 % and not 0, against it if 8.01 % lies outside. Phrases stand beside.",
    ),
    "faster-masked": Claim(
        "Rotary trains faster than absolute positions on masked tokens.",
        f"{ROFORMER}, figure 3 left",
        "Steps to the validation loss that the other ends with, seed by seed: for it if every "
        "seed takes fewer, against it if none does.",
    ),
    "faster-linear": Claim(
        "… and in linear attention, to a lower loss.",
        f"{ROFORMER}, figure 3 right (probably made with rotation before the feature map)",
        f"Loss at the end against sinusoids, with rotation behind the feature map (eq. 19) and "
        f"before it: {BETTER}.",
    ),
    "sharper": Claim(
        "With rotary, attention grows sharper from layer to layer.",
        REPORT,
        "Seeds whose entropy falls in each layer, with rotation in cross-attention too or not: for "
        "it if more than chance (p < 0.05 after Holm), against it if as many rise in each layer.",
    ),
    "sharper-why": Claim(
        "… and that is why it translates better.",
        REPORT,
        "Against it if a seed of an encoding that is shown to be better has more BLEU than all of "
        "`sinusoidal`, and in no kind of attention a last layer that is sharper than the first.",
    ),
    "bias-slow": Claim(
        "Relative biases are slow at long sequences.",
        f"{ALIBI}, of T5's; {TUTORIALS}",
        "Time of a training step at the longest length, × none, as implemented here: for it above "
        "all encodings that leave attention as it is, against it below all of them.",
    ),
    "bias-cache": Claim(
        "… and in the way of a key/value cache.",
        TUTORIALS,
        "Time of a token decoded on a cache of the longest length, × none, as implemented here: "
        "for it above all encodings that leave attention as it is, against it below all of them.",
    ),
    "t5-any-length": Claim(
        "T5's bias scales to any length.",
        TUTORIALS,
        "`t5` at 8 times the trained length, in every seed: perplexity up to 1.05 times that at "
        "the trained length, or 90 % exact, is for it; 1.2 times or more, or up to 50 %, against.",
    ),
    "decay-trained": Claim(
        "Scores decay with distance, in trained models.",
        f"{ROFORMER}, section 3.4.3; {TUTORIALS}",
        "Mean scores of `rotary` by eighths of the distance: for it if in every layer and seed the "
        "farthest is the lowest, against it if in none.",
    ),
    "decay-rotation": Claim(
        "… and it is the rotation that makes them decay.",
        f"{ROFORMER}, section 3.4.3; doubted by Barbero et al. (arXiv 2410.06205)",
        "The same fall without training: for it if above 0 by 3 standard errors, against it if "
        "not; against it too if a key can be chosen whose score is highest far away.",
    ),
    "learned-sinusoidal": Claim(
        "Learned positions do as well as sinusoids.",
        "Vaswani et al. (arXiv 1706.03762, section 3.5, table 3 row E)",
        "Score against `sinusoidal`: a shown difference, either way, is against it; for it if none "
        "is shown and the interval stays within 0.5 BLEU or 0.01 of loss. On Multi30k its "
        "rows began eleven times smaller than words, elsewhere at their size.",
    ),
    "near-far": Claim(
        "Absolute positions see 1 and 2 as far apart as 2 and 500.",
        TUTORIALS,
        "Distance between the sinusoids of 2 and 500, × that of 1 and 2: for it up to 1.1, against "
        "it from 1.5 on. Trained tables are not looked into.",
    ),
    "integers-explode": Claim(
        "Integers as positions make training explode.",
        f"{FLEETWOOD}; {TUTORIALS}",
        "Largest gradient before clipping, × that of `sinusoidal` with the same seed: for it if 10 "
        "or more, or a training diverged, in every seed; against it if 2 or less in every seed.",
    ),
    "bits-jumpy": Claim(
        "Bits of the position are jumpy, and so harder to learn from than sinusoids.",
        f"{FLEETWOOD}; {TUTORIALS}",
        "Step between neighbours, largest × smallest: for it from 2 on. Loss of `binary` against "
        f"`sinusoidal` at the trained length and 8 times it: {BETTER}.",
    ),
    "positions-stay": Claim(
        "Added positions stay in the hidden states; rotation leaves them out.",
        FLEETWOOD,
        "R² of a linear map from hidden states to positions, all layers and seeds: for it if "
        "`sinusoidal` and `learned` never have as little as `rotary`, and that at most 0.1; "
        "against it if they always have less, or that 0.5 or more.",
    ),
    "spoils-meaning": Claim(
        "… and so added positions spoil what a token means.",
        f"{FLEETWOOD}; {TUTORIALS}",
        "Tokens whose own embedding is the nearest to their vector, as the first layer reads it: "
        "against it if 99 % or more with `sinusoidal` in every seed; for it if 2 points less than "
        "with `rotary`.",
    ),
    "values-unrotated": Claim(
        "Values should not rotate.",
        f"{ALIBI}; {TUTORIALS}",
        f"Loss with values that rotate too, against `rotary`: {BETTER}.",
    ),
    "clip-harmless": Claim(
        "Clipping far distances is harmless.",
        "Shaw et al. (arXiv 1803.02155, section 3.2); T5 (arXiv 1910.10683, section 2.1)",
        "Score with clipped distances against all: a shown loss is against it; for it if none is "
        "shown and the interval stays within 0.01 of loss or 2 % of answers.",
    ),
    "every-layer": Claim(
        "Positions should come in at every layer.",
        f"{ALIBI}; {TUTORIALS}",
        f"Loss with rotation in one layer alone, against `rotary`: {BETTER}.",
    ),
    "many-frequencies": Claim(
        "A rope needs many frequencies.",
        TUTORIALS,
        "Loss with one frequency for all pairs, against `rotary`: a shown rise is for it, a shown "
        "fall against it, and so is none shown with an interval within 0.01.",
    ),
    "linear-works": Claim(
        "Rotation works with linear attention (Performer, rotation behind the feature map).",
        f"{ROFORMER}, section 3.3 and eq. 19",
        f"Loss of `rotary` against `none`: {BETTER}.",
    ),
    "longer-contexts": Claim(
        "Rotary serves contexts of 8 times the trained length.",
        f"{TUTORIALS}; doubted by {ALIBI}",
        "As for T5's bias, with plain `rotary` and no rule of scaling.",
    ),
    "sizes": Claim(
        "Rotary is better than sinusoids at every size.",
        "EleutherAI, “Rotary Embeddings: A Relative Revolution” (2021), to 6 billion parameters",
        f"Loss against `sinusoidal`, at three sizes of up to a few million parameters: {BETTER}.",
    ),
}
