"""`patch`: exact tables and the fast rotation in one transformers model."""

from __future__ import annotations

from typing import Any

from torch import nn

from ropewalk.checks import shown
from ropewalk.rotary.config.conventions import CONVERTED_PAIRING_KEY
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.scaling import Scaling
from ropewalk.tools.patch.match import match
from ropewalk.tools.patch.plan import NewRopes, Plan
from ropewalk.tools.patch.rebind import MARK
from ropewalk.tools.patch.report import Change, Patch
from ropewalk.tools.patch.rule import ConfigChange, with_rule

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
    if any(hasattr(type(module), MARK) for module in model.modules()):
        raise ValueError(
            "model must not be patched already; undo the first patch by calling the object that "
            "patch returned (in a copy of a patched model, it cannot be undone)"
        )
    config = getattr(model, "config", None)
    if config is None:
        raise ValueError(
            f"model must have a config, as models of transformers do, got {type(model).__name__}"
        )
    spec = _spec_of(config)
    if not any(layer.rope for stack in spec.stacks.values() for layer in stack):
        raise ValueError(
            f"model must have a rope to patch, got {type(model).__name__}, whose config has none"
        )
    new_ropes, new_config = ({}, None) if scaling is None else with_rule(config, spec, scaling)
    plan = Plan.of(model, spec, new_ropes)
    if not plan.changes:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in plan.left[:3])
        raise ValueError(
            f"model must have a rope that patch can replace, got {type(model).__name__}: "
            + (reasons or "no module computes tables or calls a rotation")
        )
    _check_complete(plan, spec, new_ropes)
    changes, left, name = plan.changes, plan.left, type(model).__name__
    warning = None if plan.converted is None else UNDONE_CONVERTED
    if new_config is None:
        return Patch(name, changes, left, warning).apply()
    _check_saved(plan, new_config, new_ropes)
    configs = ConfigChange(config, new_config)
    for path, module in model.named_modules():
        new = configs.new_of(vars(module).get("config"))
        if new is not None:
            changes.append(Change(path, module, attributes={"config": new}))
    return Patch(name, changes, left, warning, configs.carry_over).apply()


def _spec_of(config: Any) -> ModelSpec:
    try:
        return ModelSpec.from_config(config)
    except ValueError as error:
        known = str(error).partition("; ")[0]
        raise ValueError(f"model must have a rope that its config describes: {known}") from error


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
