"""`patch`: exact tables, the fast rotation, maybe another rule, in one transformers model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from ropewalk.checks import ArgumentNeededError, shown
from ropewalk.rotary.config.conventions import CONVERTED_PAIRING_KEY
from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.rotary.config.reader import softmax_factor
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.scaling import DynamicNTK, NTKAware, Scaling
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.patch.exact_tables import match
from ropewalk.tools.patch.patch_plan import Change, NewRopes, Patch, Plan, own_table_changes
from ropewalk.tools.patch.rotation_functions import MARK


def with_rule(
    config: Any, spec: ModelSpec, scaling: Scaling
) -> tuple[dict[tuple[str | None, RotarySpec], RotarySpec], Any]:
    """Return the new rope of each rope of the text stack, and a copy of the config with the rule.

    Layers of types that a model never scales (Gemma 3's sliding attention) keep their ropes. Raises
    ValueError if the config of this model type cannot describe the rule, or if the rule changes
    the scale of scores, which is not a part of the rope.
    """
    if not hasattr(config, "get_text_config"):
        raise ValueError("scaling must be left out for a model without a config of transformers")
    if "text" not in spec.stacks:
        raise ValueError(
            f"scaling must be left out for a model without a text stack, "
            f"got {', '.join(spec.stacks)}"
        )
    if not isinstance(scaling, Scaling):
        raise TypeError(
            f"scaling must be a rule of ropewalk.scaling, such as YaRN(…), got {shown(scaling)}"
        )
    conventions = CONVENTIONS.get(str(spec.model_type))
    unscaled = frozenset() if conventions is None else conventions.unscaled_layer_types
    made: dict[tuple[str | None, RotarySpec], RotarySpec] = {}
    layers = []
    for layer in spec.layers:
        rope = layer.rope
        if rope is not None and layer.layer_type not in unscaled:
            scaled = _scaled(rope, scaling, config)
            made[layer.layer_type, rope] = scaled
            rope = scaled
            if conventions and softmax_factor(rope, conventions) != layer.softmax_factor:
                raise ValueError(
                    "scaling must not change the scale of scores, which the model's attention has "
                    "stored: write the rule into config.json and load the model from it"
                )
        layers.append(replace(layer, rope=rope))
    if not made:
        raise ValueError("scaling must be left out: no layer of this model has a rope that scales")
    wanted = ModelSpec({"text": tuple(layers)}, spec.model_type)
    new = copy.deepcopy(config)
    if not _written(wanted, new):
        raise ValueError(
            f"scaling must be a rule that transformers reads back from a config of "
            f"{shown(spec.model_type)}, got {shown(scaling)}"
        )
    return made, new


def _scaled(rope: RotarySpec, scaling: Scaling, config: Any) -> RotarySpec:
    """Return a rope with another rule, in the form in which a config describes it."""
    if isinstance(scaling, NTKAware):  # configs have no such type; it is a larger theta
        return replace(rope, theta=scaling.larger_theta(rope.theta, rope.rotary_dim), scaling=None)
    if isinstance(scaling, DynamicNTK):
        most = getattr(config.get_text_config(), "max_position_embeddings", None)
        if most != scaling.original_length:
            raise ValueError(
                f"scaling must have original_length={most}, the config's max_position_embeddings, "
                f"which transformers uses instead of it, got {scaling.original_length}"
            )
    return replace(rope, scaling=scaling)


def _written(wanted: ModelSpec, config: Any) -> bool:
    """Write the ropes of a text stack into a transformers config, if it can describe them."""
    try:
        written = wanted.to_config()
        rope_parameters = written.get("text_config", written)["rope_parameters"]
        text = config.get_text_config()
        before = getattr(text, "rope_parameters", None) or {}
        if any(isinstance(value, dict) for value in before.values()):  # also types without layers
            rope_parameters = {**before, **rope_parameters}
        text.rope_parameters = rope_parameters
        if hasattr(config, "validate"):
            config.validate()
        return ModelSpec.from_config(config).layers == wanted.layers
    except Exception:  # transformers checks the fields of a config in its own ways
        return False


def _carry_over(configs: Sequence[tuple[Any, Any, dict[str, Any]]]) -> None:
    """Set on old configs what was set on the new ones since, except their ropes.

    configs: an old one, the new one, and the fields that this had at first.
    """
    for old, new, first in configs:
        for name, value in vars(new).items():
            of_rope = name == "rope_parameters" or hasattr(value, "to_dict")
            if value is not first.get(name) and not of_rope:
                setattr(old, name, value)


UNDONE_CONVERTED = (
    f"the weights of this model were converted ({CONVERTED_PAIRING_KEY} in its config), so it "
    f"computes wrong results unless it is patched"
)


def patch(model: nn.Module, *, scaling: Scaling | None = None) -> Patch:
    """Put exact tables and the fast rotation of q and k into a transformers model.

    model: a model of transformers, or a module that contains one and has its config as `.config`.
        Only this object changes, no class and no other model: the class of each affected module is
        replaced by a subclass with exact tables and other functions that rotate. A
        function is replaced only if a call on random numbers shows which rotation it computes; a
        module's tables only if they are those of the config, up to the rounding of its buffers.
    scaling: a rule of `ropewalk.scaling` for the ropes of the text stack (not vision), instead of
        the config's. The model gets a config with this rule, and `save_pretrained` writes it.
        Attributes of the model's own rotary modules (`inv_freq`) do not change.

    A transformer of diffusers keeps its own tables, and a compiler takes its own rotation.

    A model with converted weights (`rope_pairing` in its config) is right only while it is patched,
    so undoing warns.

    Returns a `Patch`: call it to restore the model, or use it in a `with` statement. It lists which
    modules were changed and which were not, with the reason. Saving a patched model writes the same
    weights as before. Copies and pickles of a patched model are patched too.

    Tables have the shape and layout that the model's code expects. In a half-precision model
    they are float32 if every rotation that uses them was replaced.
    Length-dependent rules use the length of the longest sequence in the batch, as in transformers,
    but do not depend on earlier calls. If you replace a function in a model's Python module
    (modeling_….py) after `patch`, patched layers do not use it.

    Raises TypeError if model is not a module. Raises ValueError if its config cannot be read, if it
    has no rope, if nothing could be replaced, or if it is patched already.

    Example:
        >>> import ropewalk, torch, transformers
        >>> config = transformers.LlamaConfig(
        ...     hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        ...     vocab_size=100)
        >>> model = transformers.LlamaForCausalLM(config).eval()
        >>> tokens = torch.arange(20)[None]
        >>> before = model(tokens).logits
        >>> undo = ropewalk.patch(model)
        >>> undo
        LlamaForCausalLM
          exact tables: model.rotary_emb
          fast rotation: model.layers.0-1.self_attn
        >>> torch.allclose(model(tokens).logits, before, atol=1e-5)
        True
        >>> undo()
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    parts = [part for m in model.modules() for part in (m, vars(m).get("processor"))]
    if any(hasattr(type(part), MARK) for part in parts):
        raise ValueError(
            "model must not be patched already; undo the first patch by calling the object that "
            "patch returned (in a copy of a patched model, it cannot be undone)"
        )
    config = getattr(model, "config", None)
    if config is None:
        raise ValueError(
            f"model must have a config, as models of transformers do, got {type(model).__name__}"
        )
    if type(config).__module__.partition(".")[0] == "diffusers":
        if scaling is not None:
            raise ValueError("scaling must be left out for a model of diffusers, got a rule")
        changes, left = own_table_changes(model)
        _check_any(model, changes, left)
        return Patch(type(model).__name__, changes, left).apply()
    try:
        spec = ModelSpec.from_config(config)
    except ValueError as error:
        what = error.what if isinstance(error, ArgumentNeededError) else str(error)
        raise ValueError(f"model must have a rope that its config describes: {what}") from error
    if not any(layer.rope for stack in spec.stacks.values() for layer in stack):
        raise ValueError(
            f"model must have a rope to patch, got {type(model).__name__}, whose config has none"
        )
    new_ropes, new_config = ({}, None) if scaling is None else with_rule(config, spec, scaling)
    plan = Plan(model, spec, new_ropes)
    _check_any(model, plan.changes, plan.left)
    _check_complete(plan, spec, new_ropes)
    changes, left, name = plan.changes, plan.left, type(model).__name__
    warning = None if plan.converted is None else UNDONE_CONVERTED
    if new_config is None:
        return Patch(name, changes, left, warning).apply()
    _check_saved(plan, new_config, new_ropes)
    # Other objects may share the old configs, so modules get new ones instead of changed ones.
    pairs = ((config, new_config), (config.get_text_config(), new_config.get_text_config()))
    configs = [(old, new, dict(vars(new))) for old, new in pairs]
    for path, module in model.named_modules():
        own = vars(module).get("config")
        if (new := next((new for old, new in pairs if old is own), None)) is not None:
            changes.append(Change(path, module, attributes={"config": new}))
    return Patch(name, changes, left, warning, partial(_carry_over, configs)).apply()


def _check_any(
    model: nn.Module, changes: Sequence[Change], left: Sequence[tuple[str, str]]
) -> None:
    if not changes:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in left[:3])
        raise ValueError(
            f"model must have a rope that patch can replace, got {type(model).__name__}: "
            + (reasons or "no module computes tables or calls a rotation")
        )


def _check_complete(plan: Plan, spec: ModelSpec, new_ropes: NewRopes) -> None:
    """Raise if a module that stays unpatched would make the model's results wrong."""
    left = [*plan.tables_left, *plan.rotations_left]
    if plan.converted is not None:
        text = [path for path in plan.rotating if plan.is_text(path)]
        layers = [i for i, layer in enumerate(spec.layers) if layer.rope is not None]
        missing = [i for i in layers if not any(f".{i}." in f".{path}." for path in text)]
        left_text = [(path, reason) for path, reason in left if plan.is_text(path)]
        if left_text or missing:
            where, why = (left_text or [(f"layer {missing[0]}", "no module of it rotates")])[0]
            raise ValueError(
                f"model must be patched completely, because its weights were converted "
                f"({CONVERTED_PAIRING_KEY}), got {where}, which cannot be patched: {why}"
            )
    if {rope for _, rope in new_ropes} - plan.replaced:
        where, why = (plan.tables_left or [("its tables", "they are stored in each layer")])[0]
        raise ValueError(
            f"scaling must be left out for this model, because patch cannot apply another rule to "
            f"all of its tables ({where}: {why})"
        )


def _check_saved(plan: Plan, config: Any, new_ropes: NewRopes) -> None:
    """Raise if transformers would not load the patched ropes from the config that is saved."""
    ropes = tuple(new_ropes.values()) + tuple(plan.replaced)
    for change in plan.changes:
        if "exact_tables" not in change.attributes or not plan.is_text(change.path):
            continue
        try:
            saved = type(change.module)(config.get_text_config())
        except Exception as error:  # code of a model may raise anything
            raise ValueError(_unlike(change.path, error)) from error
        exact = change.attributes["exact_tables"].matches
        found, _ = match(saved, lambda layer_type: ropes)
        for layer_type, each in exact.items():
            if layer_type not in found or found[layer_type].rope != each.rope:
                raise ValueError(_unlike(change.path, "it computes other tables"))


def _unlike(path: str, reason: object) -> str:
    return (
        f"scaling must be a rule that this model's code follows, so that a saved model has the "
        f"same ropes, got one that {path} does not follow: {shown(str(reason))}"
    )
