"""The faults that `verify` names: what each is, and where it usually comes from."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """What a fault is, and where it usually comes from."""

    what: str
    cause: str


FAULTS: dict[str, Fault] = {
    "cos-sin-mixed": Fault(
        "a cosine is where a sine belongs",
        "the tables are swapped, or one table alternates sines and cosines as sinusoidal "
        "embeddings do",
    ),
    "not-a-rotation": Fault(
        "the function does not rotate pairs of dimensions",
        "positions are added, or vectors are multiplied by a matrix that is not a rotation, such "
        "as cos(0.01·i·j)",
    ),
    "pairing": Fault(
        "other dimensions rotate together",
        "half pairs (i, i + R/2) and interleaved pairs (2i, 2i + 1) were confused; use the other "
        "pairing, or keep yours and permute the rows of the q and k weights, not both",
    ),
    "layouts-mixed": Fault(
        "tables are laid out for other pairs than those that rotate",
        "cos and sin repeat for neighbors (repeat_interleave) beside a rotate_half of halves, or "
        "once after the other (cat) beside one of neighbors",
    ),
    "overwritten-half": Fault(
        "a half of the vector is overwritten before it is used for the other",
        "the rotation is in place, and writes its first result before it computes the second",
    ),
    "half-precision-angles": Fault(
        "angles were rounded to bfloat16 or float16",
        "positions, frequencies or their product have the dtype of the model; compute angles in "
        "float32 and cast cos and sin afterwards",
    ),
    "rounded-tables": Fault(
        "cos and sin were rounded to bfloat16 or float16",
        "the tables have the dtype of the model, and rotate float32 vectors; keep them in float32, "
        "and round the rotated vectors",
    ),
    "table-too-short": Fault(
        "positions beyond the end of the table are wrong or refused",
        "the table was built for fewer positions than the model serves",
    ),
    "stale-table": Fault(
        "a call uses the table of an earlier call",
        "a cached table is used again for other positions, another dtype or another device",
    ),
    "history": Fault(
        "the result at a position depends on the length of this call or of earlier ones",
        "a length-dependent rule (dynamic NTK, LongRoPE) takes its length from the call; cached "
        "keys then have other frequencies than new queries. Or calls of one token have other code",
    ),
    "offset-ignored": Fault(
        "the offset has no effect",
        "the table is always read from its first row; decoding with a cache repeats position 0",
    ),
    "positions-ignored": Fault(
        "the positions have no effect",
        "the table is always read from its first row; packed documents, padding and decoding with "
        "a cache get wrong positions. Keys that are moved: the old rotation is not undone",
    ),
    "partial-ignored": Fault(
        "the complete head rotates",
        "partial_rotary_factor or rotary_dim is not read",
    ),
    "rotary-part": Fault(
        "other dimensions of the head rotate",
        "rotary_dim, or the first dimension that rotates, differs",
    ),
    "wrong-exponent": Fault(
        "frequencies have another exponent than -2i/R",
        "the index or the divisor is wrong, as in i/R, or in 2i/D if only R of D dimensions rotate",
    ),
    "wrong-sign": Fault(
        "pairs rotate backwards, or are not rotated because one sign is wrong",
        "the sign of the sine is flipped, rotate_half lacks its minus sign, or the tables are "
        "those of the inverse rotation",
    ),
    "values-rotated": Fault(
        "values rotate too",
        "the rotation is applied to q, k and v, or before they are split",
    ),
    "norm-drift": Fault(
        "vectors become longer or shorter with their position",
        "a factor depends on the position, as in xPos without its counterpart in keys",
    ),
    "amplitude": Fault(
        "cos and sin have another amplitude",
        "YaRN's or LongRoPE's attention factor is missing, or applied twice",
    ),
    "uninitialised-frequencies": Fault(
        "frequencies are not numbers, zero or arbitrary, or no rotation is applied",
        "a buffer that is not in the checkpoint was left unset after meta-device loading or "
        "to_empty(); compute the frequencies again after loading",
    ),
    "layer-types-mixed": Fault(
        "the layer has the rope of another type of layer",
        "full and sliding attention were confused, or all layers share one rope",
    ),
    "rule-ignored": Fault(
        "the scaling rule is not applied",
        "rope_scaling or rope_parameters is not read, or read under another name",
    ),
    "rule-applied-twice": Fault(
        "the scaling rule is applied twice",
        "frequencies that were scaled already are scaled again, or positions are scaled too",
    ),
    "rotated-twice": Fault(
        "vectors are rotated twice",
        "vectors that are rotated already, such as keys from a cache, are rotated again",
    ),
    "keys-shifted": Fault(
        "keys are rotated at other positions than queries",
        "positions of one of the two start elsewhere, or a constant angle is added",
    ),
    "input-mutated": Fault(
        "the input was changed",
        "the rotation is in place, or writes to a view of its input",
    ),
    "theta": Fault(
        "theta differs",
        "rope_theta is not read, and the default of the class is used",
    ),
    "frequencies": Fault(
        "frequencies differ",
        "another rule, other fields of the rule, or other axes",
    ),
    "gradient": Fault(
        "the gradient is not the transpose of the rotation",
        "a backward pass written by hand rotates by the wrong angle or drops an argument",
    ),
    "batch": Fault(
        "a row of a batch depends on the other rows",
        "positions or tables are broadcast along the wrong axis",
    ),
    "heads": Fault(
        "heads rotate differently, or depend on one another",
        "positions or tables are broadcast along the axis of heads, or heads were exchanged",
    ),
    "inputs-mixed": Fault(
        "a result depends on another input",
        "q and k were exchanged, or one was rotated in place of the other",
    ),
    "fails": Fault(
        "the call raises or returns something else",
        "the function does not serve this input",
    ),
}
