"""Every rope of every model folder of transformers, against what `from_config` reads in its JSON.

For each folder with a rotary class, a small model of its default configuration rotates random q and
k by transformers' own code; `ModelSpec.from_config` sees that configuration's JSON alone, and what
it reads must rotate them alike. These fail when a pairing, a place, an order of axes, a theta or a
rule is read wrongly for any family, when a folder is not walked through, when a comparison would
not notice a flipped pairing or another theta, and when the catalogue's entry differs from the rope.
"""

import dataclasses
import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from ropewalk import ModelSpec, RotaryEmbedding, RotarySpec

pytest.importorskip(
    "transformers", reason="needs transformers, the outside reference: pip install 'ropewalk[dev]'"
)
import transformers_ropes
from stack_entries import ENTRIES, entry_of_stack
from transformers_ropes import UNREACHABLE, Case

from ropewalk.rotary.config.unread_types import WITHOUT_ROPE
from ropewalk.tools.catalogue.entries import rotary_part

# A few that differ from one another, so that the short run sees every kind of reading.
SOME = """
    deepseek_v3 gemma3 gptj llama pixtral
""".split()  # noqa: SIM905

# What transformers computes there is another thing, or no rotation; from_config says so or differs.
REFUSED = {
    "clvp": "values rotate too",
    "esmfold2": "axes with different thetas within one head",
    "musicflamingo": "audio states rotate by seconds, not queries and keys by positions",
    "neucodec": "heads rotate by their number, not tokens by their position",
    "vjepa2": "pairs are mixed up, so that norms change",
    "xcodec2": "heads rotate by their number, not tokens by their position",
}
DIFFERS = {
    "hunyuan_vl.HunYuanVLRotaryEmbedding": (
        "the halves of a pair follow different axes, so that norms change; in its own code they do "
        "not"
    ),
    "minimax_m3_vl.MiniMaxM3VLRotaryEmbedding": (
        "the configuration's rotary_dim of 64 is documented, but not read: all 128 rotate"
    ),
    "qwen2_5_omni.Qwen2_5OmniDiTRotaryEmbedding": "head 0 alone rotates",
}

TOLERANCE = 1e-4

# Defects there: with a theta of 1,000 more pairs are fast, and float32 angles are further off.
LESS_EXACT = {"nomic_bert": 1.2e-4}

# Coordinates are multiplied by 2π in the model, and by `positions.coordinates` here.
TIMES_TWO_PI = {"dinov3_vit", "eomt_dinov3", "sapiens2"}

# Without rope_parameters, the class sets all of them, theta too; from_config requires them. In
# rope_parameters without a theta, the default is the entry's.
THETA_OF_ALL_PARAMETERS = {"ministral3"}

outcomes: dict[str, dict[str, str]] = {}  # family → case → "same", or why not


def name_of(case: Case) -> str:
    return f"{case.family}.{case.rotary_class}"


def stack_of(case: Case, spec: ModelSpec) -> str:
    """The stack of ours that the case is about."""
    if len(spec.stacks) == 1:
        return next(iter(spec.stacks))
    for part, stack in (("talker", "talker"), ("patcher", "patcher"), ("code2wav", "audio")):
        if part in case.where.lower() or part in case.rotary_class.lower():
            return stack
    if case.rotary_class == "Qwen3OmniMoeRotaryEmbedding" and case.stack == "text":
        return "code_predictor"
    renamed = {
        ("t5gemma2", "text"): "encoder",
        ("deepseek_ocr2", "encoder"): "vision",
        ("nemotron3_5_transcribe", "text"): "encoder",
    }
    return renamed.get((case.family, case.stack), case.stack)


def our_rope(case: Case) -> RotarySpec | None:
    spec = ModelSpec.from_config(case.config)
    return spec.layer(case.layer, stack_of(case, spec)).rope


def rotated(case: Case, rope: RotarySpec | None, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    if rope is None:
        return q, k
    embedding = RotaryEmbedding(rope)
    positions = case.positions * (2 * math.pi if case.family in TIMES_TWO_PI else 1)
    return embedding.rotate(q, positions), embedding.rotate(k, positions)


def far(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> float:
    """The greatest distance between two vectors, which were one of norm 1.

    transformers' angles are float32: below position 4,096 they are off by up to 2e-4 each, whole
    vectors by less.
    """
    return max((a - b).norm(dim=-1).max().item() for a, b in zip(ours, theirs, strict=True))


def queries_and_keys(case: Case) -> tuple[Tensor, Tensor]:
    length = case.positions.shape[-1]
    return (
        normalize(torch.randn(1, case.heads, length, case.head_dim), dim=-1),
        normalize(torch.randn(1, case.kv_heads, length, case.head_dim), dim=-1),
    )


def walk(family: str) -> None:
    seen = outcomes.setdefault(family, {})
    for number, case in enumerate(transformers_ropes.family_cases(family)):
        label = f"{number} {name_of(case)} {case.stack} {case.layer_type} layer {case.layer}"
        if family in REFUSED:
            with pytest.raises(
                ValueError, match="must be one with a rope that RotarySpec can describe"
            ):
                our_rope(case)
            seen[label] = REFUSED[family]
            continue
        q, k = queries_and_keys(case)
        theirs = case.rotate(q, k)
        if name_of(case) in DIFFERS:
            seen[label] = DIFFERS[name_of(case)]
            continue
        rope = our_rope(case)
        distance = far(rotated(case, rope, q, k), theirs)
        assert distance <= LESS_EXACT.get(family, TOLERANCE), (
            f"{label}: off by {distance}, read as {rope}"
        )
        seen[label] = "same"
        if rope is not None:
            check_entry(case, rope, label)
            for wrong in disturbed(rope):
                distance = far(rotated(case, wrong, q, k), theirs)
                assert distance > 100 * TOLERANCE, f"{label} would pass as {wrong}"
    excused = [name for name in UNREACHABLE if name.split(".")[0] == family]
    assert not seen or family in {entry.family for entry in ENTRIES.values()}, "no entry"
    assert seen or excused, f"no case for {family}"


def check_entry(case: Case, rope: RotarySpec, label: str) -> None:
    """The catalogue's entry has the pairing, rotary part and default theta of this rope."""
    spec = ModelSpec.from_config(case.config)
    model_type = case.config.get("model_type") or spec.model_type
    entry = entry_of_stack(case.config, model_type, stack_of(case, spec)).rope
    assert entry is not None, label
    assert (entry.pairing, entry.write_pairing) == (rope.pairing, rope.write_pairing), label
    parts = {"first": ("first", "all")}.get(entry.rotary_part, (entry.rotary_part,))
    assert rotary_part(rope) in parts, label
    of_type = entry.theta_by_layer_type.get(case.layer_type or "")
    theta = entry.theta_default if of_type is None else of_type.default
    as_stated = theta in (None, rope.theta)
    assert as_stated is (case.family not in THETA_OF_ALL_PARAMETERS), label


def disturbed(rope: RotarySpec) -> list[RotarySpec]:
    """The same rope with its pairing flipped, and with another theta."""
    flip = {"half": "interleaved", "interleaved": "half"}
    flipped = dataclasses.replace(
        rope, pairing=flip[rope.pairing], write_pairing=flip[rope.write_pairing]
    )
    return [flipped, dataclasses.replace(rope, theta=2 * rope.theta)]


def test_no_type_without_a_rope_has_one():
    folders = {name.replace("-", "_") for name in WITHOUT_ROPE}
    assert not folders & set(transformers_ropes.families())


@pytest.mark.parametrize("family", SOME)
def test_reads_some_families(family):
    walk(family)


@pytest.mark.slow
@pytest.mark.parametrize("family", [f for f in transformers_ropes.families() if f not in SOME])
def test_reads_every_other_family(family):
    walk(family)


@pytest.mark.slow
def test_the_walk_was_whole():
    """After all others: how many folders there are, and how many `from_config` covers."""
    missing = set(transformers_ropes.families()) - outcomes.keys()
    if missing:
        pytest.skip(f"only where all families were walked; {len(missing)} were not")
    towers = {f for f, seen in outcomes.items() if any(is_tower(label) for label in seen)}
    for kind, folders, floor in (
        ("text only", outcomes.keys() - towers, 0.95),
        ("with another tower", towers, 0.80),
    ):
        covered = {f for f in folders if set(outcomes[f].values()) == {"same"}}
        print(f"{kind}: {len(covered)} of {len(folders)} folders covered")
        for family in sorted(folders - covered):
            reasons = {why for why in outcomes[family].values() if why != "same"}
            reasons |= {why for name, why in UNREACHABLE.items() if name.startswith(family)}
            print(f"  {family}: {'; '.join(reasons)}")
        assert len(covered) >= floor * len(folders)
    cases = [why for seen in outcomes.values() for why in seen.values()]
    print(f"{len(outcomes)} folders, {len(cases)} ropes, {cases.count('same')} the same")


def is_tower(label: str) -> bool:
    return label.split()[2] in ("vision", "audio")
