"""The rule that `extend` recommends to try first, among those that the model's code follows.

Also the usual parameters of each rule. The recommendation follows stated rules and published
results, and knows nothing about the weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ropewalk.checks import check_word
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
from ropewalk.tools.extend.extension import Recommendation, RuleResult

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
    **dict.fromkeys(("qwen", "grok-1", "baichuan", "stablelm_epoch"), Followed((), _FIXED)),
    "xlm-roberta": Followed((), "the code that rotates reads only rotary_emb_base"),
    "mpt": Followed((), "the code that rotates has its rule in attn_config.rope_hf_config"),
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
OWN_CODE = frozenset(
    {
        *("Yi", "bailing_moe", "bailing_moe_v2", "deepseek", "deepseek_vl_v2", "dots_ocr"),
        *("exaone", "hunyuan", "mimo", "minicpmo", "minicpmv", "multi_modality"),
    }
)


def check_method(method: str | None) -> str | None:
    """Return a method, or None for all. Raises ValueError if it is unknown."""
    if method is not None:
        check_word("method", method, ("all", *METHODS))
    return None if method == "all" else method


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
    if isinstance(current, Proportional):
        return dataclasses.replace(current, factor=factor)
    rule = BY_METHOD[method]
    fields: dict[str, Any] = {"factor": factor}
    if method not in ("linear", "ntk"):
        fields["original_length"] = original
    if not isinstance(current, rule):
        bands = {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if rule is Llama3 else {}
        return rule(**fields, **bands)
    if isinstance(current, (YaRN, LongRoPE)):
        fields["attention_factor"] = None  # it depends on the factor
    return dataclasses.replace(current, **fields)  # type: ignore[type-var]


PROVEN = 2.0  # the YaRN paper reports over 2 times without training, with its dynamic form
DOCUMENTED = 4.0  # the model cards of Qwen2.5 and Qwen3 document 4 times for these models
BY_METHOD: dict[str, type[Scaling]] = {
    "linear": Linear, "ntk": NTKAware, "dynamic": DynamicNTK, "yarn": YaRN, "llama3": Llama3,
    "longrope": LongRoPE,
}  # fmt: skip
# If the code follows several rules, the first of these.
PREFERRED = ("yarn", "llama3", "ntk", "dynamic", "linear")
REASONS = {
    "yarn": "YaRN keeps the pairs that rotate often unchanged, so near distances stay sharp, and "
    "slows the others by the factor. Its paper reports better perplexity than linear and NTK-aware "
    "scaling, with and without fine-tuning.",
    "llama3": "The rule of Llama 3.1 keeps the pairs that rotate often unchanged and slows the "
    "others by the factor.",
    "ntk": "A larger theta needs no rule in the model's code, which has neither YaRN nor the rule "
    "of Llama 3.1; it keeps the fastest pair and slows the slowest by the factor.",
    "dynamic": "Inputs up to the original length keep their angles exactly.",
    "linear": "Linear scaling keeps the angles of each pair within those of training.",
}

STATIC = (
    "The rule is static: it changes short inputs too. Qwen's model cards say that static YaRN may "
    "lower the quality on shorter texts, and advise it only if long inputs are needed. If most "
    "inputs are short, serve them with the config as it is."
)
UNKNOWN = (
    "These numbers say which angles the model has not seen, not how well it answers. Test the "
    "candidates on your own long texts, and on short ones."
)
TRAIN = (
    "Fine-tune with the rule on. The YaRN paper (arXiv 2309.00071) trained Llama 2 for 400 steps "
    "at 16 times its context, and 200 more at 32 times; Position Interpolation (arXiv 2306.15595) "
    "trained LLaMA for 1,000 steps at up to 16 times."
)


def recommend(
    results: tuple[RuleResult, ...],
    model_type: str | None,
    factor: float,
    current: Scaling | None,
    growth: float,
) -> Recommendation:
    """Return the rule to try first.

    results: of all methods that were computed. factor: the target divided by the original length.
    current: the rule of the config. growth: the target divided by the current context.
    """
    usable = {result.method: result for result in results if result.usable}
    if not usable:
        reason = f"The code of model type {model_type} follows none of these rules."
        way_out = "Use a model that was trained for this length, or change the model's code."
        return Recommendation(None, reason, (way_out,))
    if "longrope" in usable:
        return Recommendation(
            "longrope",
            "The config has divisors from a search on this model (LongRoPE), and its weights were "
            "trained with them.",
            (
                "The divisors were searched for the length in the config. No results with them "
                "were published for longer contexts. Search again (arXiv 2402.13753) or fine-tune.",
                UNKNOWN,
            ),
        )
    if isinstance(current, NTKAware):
        return Recommendation(
            None,
            f"The config's alpha, {current.factor:g}, is not a ratio of lengths. The model was "
            f"trained with it, and each rule here would replace it.",
            ("So a longer context needs training, whichever rule you choose.", UNKNOWN),
        )
    (plain,) = (result for result in results if result.method == "none")
    own = [name for name, rule in BY_METHOD.items() if isinstance(current, rule)]
    method = next(name for name in (*own, *PREFERRED, *usable) if name in usable)
    if plain.numbers and not any(numbers.leaving for numbers in plain.numbers):
        return Recommendation(
            None,
            "Without any rule, no pair reaches angles that training never reached: each pair that "
            "rotates makes a full turn within the original context.",
            (
                "The distances themselves are still longer than any in training, and the model may "
                "fail at them. State the longer context and test; if it fails, fine-tune.",
                UNKNOWN,
            ),
        )
    reason = (
        f"Without a rule, {_share(plain)} reach angles that training never reached; with it, "
        f"{_share(usable[method])} do. "
    )
    if method in own:
        reason += "The config has this rule, and the weights were probably trained with it. "
    limits = _limits(method, growth if method in own else factor, current)
    return Recommendation(method, reason + REASONS[method], limits)


def _share(result: RuleResult) -> str:
    """Return "24 of 64 pairs", for all ropes of the model together."""
    leaving = sum(len(each.leaving) for each in result.numbers)
    pairs = sum(len(each.growth) for each in result.numbers)
    return f"{leaving or 'none'} of {pairs} pairs"


def _limits(method: str, times: float, current: Scaling | None) -> tuple[str, ...]:
    """Return the limits. times: how much longer the context becomes than one that was trained."""
    if times <= PROVEN:
        limits = [
            f"Without training: {times:.3g} times the context is within what the YaRN paper "
            f"reports without fine-tuning (more than 2, with a factor that grows with the length)."
        ]
    elif times <= DOCUMENTED:
        limits = [
            f"Without training: Qwen's model cards document YaRN with the factor 4 for Qwen2.5 and "
            f"Qwen3. For other models, {times:.3g} times the context without training is not "
            f"proven."
        ]
    else:
        limits = [
            f"Without training or a search on the model, we know no published results for "
            f"{times:.3g} times the context (only 2 to 4; LongRoPE, arXiv 2402.13753, reports 8 "
            f"times without fine-tuning, after a search). {TRAIN}"
        ]
    if method == "linear":
        limits.append(
            "Linear scaling also blurs near distances. Its paper fine-tunes the model with the "
            "rule on."
        )
    if method != "dynamic":
        limits.append(STATIC)
    if current is not None and not isinstance(current, BY_METHOD[method]):
        limits.append(
            f"The weights were probably trained with the config's rule {type(current).__name__}. "
            f"Another rule then needs training, at any length."
        )
    return (*limits, UNKNOWN)
