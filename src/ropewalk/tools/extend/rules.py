"""The rules that `extend` compares, with their usual parameters, and which code follows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ropewalk.checks import did_you_mean, shown
from ropewalk.rotary.scaling import (
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKAware,
    Proportional,
    Scaling,
    YaRN,
)

METHODS = ("linear", "ntk", "dynamic", "yarn", "llama3", "longrope")

#: What `ropewalk extend` prints after the fields of a rule; s is the factor, R the rotary_dim.
REMARKS = {
    "ntk": ": theta · s^(R/(R-2))",
    "dynamic": ": theta grows with the length of the sequence",
}

_ITS_OWN = "its code computes the rope itself and ignores"
_FIXED = f"{_ITS_OWN} rope_parameters"
_NO_RULE = f"{_ITS_OWN} the rule in rope_parameters"


@dataclasses.dataclass(frozen=True)
class Followed:
    """The methods that the code of a model type follows, and why it follows no other."""

    methods: tuple[str, ...]
    why: str


#: Model types whose code follows only some rules. Others use all rules of transformers
#: (modeling_rope_utils.py). Source: transformers 5.23, read and run by the tests; for types that
#: transformers does not have, the code next to the weights.
FOLLOWED: Mapping[str, Followed] = {
    **dict.fromkeys(("codegen", "gptj", "roformer", "phi-msft"), Followed((), _FIXED)),
    **dict.fromkeys(("esm", "esm_rotary", "SaProtConfig"), Followed((), _FIXED)),
    "recurrent_gemma": Followed(("ntk",), _NO_RULE),
    "ernie4_5_vl_moe_text": Followed(("ntk",), _NO_RULE),
    "chatglm": Followed((), "its code reads only rope_ratio, a factor of theta"),
    "phi3": Followed(("ntk", "longrope"), "its config accepts no rule but longrope"),
    "phi3_v": Followed(("ntk", "longrope"), "its config accepts no rule but longrope"),
    "phimoe": Followed(("ntk", "longrope"), "its config requires longrope's mscales"),
    "internlm2": Followed(("linear", "dynamic", "ntk"), "its code has only linear and dynamic"),
    "minicpm": Followed(
        ("linear", "dynamic", "ntk", "longrope"), "its code has only linear, dynamic and longrope"
    ),
}  # fmt: skip

#: Model types whose code is next to the weights, and is not in transformers 5.23.
OWN_CODE = frozenset({"Yi", "deepseek", "hunyuan"})


def check_method(method: str | None) -> str | None:
    """Return a method, or None for all. Raises ValueError if it is unknown."""
    if method is None or method == "all":
        return None
    if method not in METHODS:
        known = ("all", *METHODS)
        raise ValueError(
            f"method must be one of {', '.join(known)}, got {shown(method)}"
            + did_you_mean(str(method)[:40], known)
        )
    return method


def why_not(method: str, model_type: str | None, current: Scaling | None) -> str | None:
    """Return why a model cannot have a rule, or None if nothing is known against it."""
    if isinstance(current, Proportional) and method != "linear":
        return (
            "the config has the rule proportional (p-RoPE), whose pairs that do not rotate are a "
            "part of the model; it has no form together with this rule, only with a factor (linear)"
        )
    if method == "longrope" and not isinstance(current, LongRoPE):
        return (
            "it needs a divisor for each pair, found by a search on this model (arXiv 2402.13753), "
            "and the config has none"
        )
    followed = FOLLOWED.get(model_type or "")
    if followed is not None and method not in followed.methods:
        return f"the code of model type {model_type} does not follow it: {followed.why}"
    return None


def make_rule(method: str, factor: float, original: int, current: Scaling | None) -> Scaling:
    """Return a rule with its usual parameters.

    If the config has the same rule already, its parameters that do not depend on the length stay.
    """
    made = _usual(method, factor, original, current)
    if type(made) is not type(current) or isinstance(current, Proportional):
        return made
    changes: dict[str, object] = {"factor": made.factor}  # type: ignore[attr-defined]
    if hasattr(made, "original_length"):
        changes["original_length"] = original
    if isinstance(current, (YaRN, LongRoPE)):
        changes["attention_factor"] = None  # it depends on the factor
    return dataclasses.replace(current, **changes)  # type: ignore[type-var]


def _usual(method: str, factor: float, original: int, current: Scaling | None) -> Scaling:
    if isinstance(current, Proportional):
        return dataclasses.replace(current, factor=factor)
    if method == "linear":
        return Linear(factor)
    if method == "ntk":
        return NTKAware(factor)
    if method == "dynamic":
        return DynamicNTK(factor, original_length=original)
    if method == "yarn":
        return YaRN(factor, original_length=original)
    if method == "llama3":
        return Llama3(factor, 1.0, 4.0, original_length=original)
    assert method == "longrope"
    assert isinstance(current, LongRoPE)
    return dataclasses.replace(current, factor=factor, original_length=original)
