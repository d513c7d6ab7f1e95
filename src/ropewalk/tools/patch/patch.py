"""`patch`: exact tables and the fast rotation in one transformers model."""

from __future__ import annotations

from typing import Any

from torch import nn

from ropewalk.checks import shown
from ropewalk.rotary.config.conventions import CONVERTED_PAIRING_KEY
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.scaling import Scaling
from ropewalk.tools.patch.plan import NewRopes, Plan
from ropewalk.tools.patch.rebind import MARK
from ropewalk.tools.patch.report import Change, Patch
from ropewalk.tools.patch.rule import with_rule
from ropewalk.tools.patch.tables import match


def patch(model: nn.Module, *, scaling: Scaling | None = None) -> Patch:
    """Put exact tables and the fast rotation of q and k into a transformers model.

    model: a model of transformers, or a module that has one and its `config`. This object alone
        changes, no class and no other model: modules get subclasses of their own classes, in which
        the tables are exact and the functions that rotate are replaced. A function is replaced only
        if a call of it on random numbers shows which rotation it is; a module's tables only if they
        are those of the config, up to float32 rounding.
    scaling: a rule of `ropewalk.scaling` for the ropes of the text, instead of the config's. The
        model's config then says so too, and `save_pretrained` writes it.

    Returns a `Patch`: call it to restore the model, or use it in a `with` statement; it lists what
    was taken and what was left, with the reason. Weights do not change, so saved weights are those
    of the model. Copies and pickles of a patched model are patched too.

    Length-dependent rules take the length of each sequence from its last position, so that results
    do not depend on earlier calls, as they do in transformers.

    Raises TypeError for what is not a module. Raises ValueError if its config cannot be read, if it
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
        raise ValueError("model must not be patched already; call the earlier patch to undo it")
    config = getattr(model, "config", None)
    if config is None:
        raise ValueError(
            f"model must have a config, as models of transformers do, got {type(model).__name__}"
        )
    spec = ModelSpec.from_config(config)
    if not any(layer.rope for stack in spec.stacks.values() for layer in stack):
        raise ValueError(
            f"model must have a rope to patch, got {type(model).__name__}, whose config has none"
        )
    new_ropes, new_config = ({}, None) if scaling is None else with_rule(config, spec, scaling)
    plan = Plan(model, spec, new_ropes)
    if not any(change.cls for change in plan.changes):
        reasons = "; ".join(f"{path}: {reason}" for path, reason in plan.left[:3])
        raise ValueError(
            f"model must have a rope that patch can replace, got {type(model).__name__}: "
            + (reasons or "no module computes tables or calls a rotation")
        )
    _check_complete(plan, new_ropes)
    if new_config is not None:
        _check_saved(plan, new_config, new_ropes)
    changes = plan.changes + _config_changes(model, config, new_config)
    return Patch(type(model).__name__, changes, plan.left).apply()


def _check_complete(plan: Plan, new_ropes: NewRopes) -> None:
    """Raise if modules are left although the model would be another one with them."""
    left = plan.tables_left + plan.rotations_left
    if plan.converted is not None and left:
        raise ValueError(
            f"model must be patched completely, because its weights were converted "
            f"({CONVERTED_PAIRING_KEY}), got {left[0][0]}, which cannot be: {left[0][1]}"
        )
    if {rope for _, rope in new_ropes} - plan.replaced:
        left = plan.tables_left or [("its tables", "they are stored in each layer")]
        raise ValueError(
            f"scaling must be left out for this model, since not all tables can be computed by "
            f"another rule: {left[0][0]}: {left[0][1]}"
        )


def _check_saved(plan: Plan, config: Any, new_ropes: NewRopes) -> None:
    """Raise if transformers would compute other ropes from the new config, after a save."""
    ropes = tuple(new_ropes.values()) + tuple(plan.replaced)
    for change in plan.changes:
        if "exact_tables" not in change.attributes:
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


def _config_changes(model: nn.Module, old: Any, new: Any) -> list[Change]:
    """Return the changes that give each module the new config instead of the old one."""
    if new is None:
        return []
    sections = {id(old): new}
    if hasattr(old, "get_text_config"):
        sections[id(old.get_text_config())] = new.get_text_config()
    return [
        Change(path, module, attributes={"config": sections[id(vars(module)["config"])]})
        for path, module in model.named_modules()
        if id(vars(module).get("config")) in sections
    ]
