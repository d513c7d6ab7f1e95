"""The roles of a function's arguments: which one takes q, positions, an offset, cos and sin."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, get_args

from torch import nn

from ropewalk.checks import shown

Role = Literal["x", "q", "k", "v", "positions", "offset", "cos", "sin", "freqs_cis", "freqs"]
ROLES: tuple[Role, ...] = get_args(Role)

#: Names that code gives to its arguments. Only exact names count.
NAMES: dict[Role, str] = {
    "q": "q query queries xq q_states query_states q_in",
    "k": "k key keys xk k_states key_states k_in",
    "v": "v value values xv v_states value_states",
    "x": "x t u inp input inputs tensor hidden hidden_states h states vec vectors",
    "positions": "cache_position positions position pos position_ids pos_ids input_pos "
    "positions_ids pos_idx ids idx indices m seq_pos token_positions",
    "offset": "offset start start_pos start_position start_index past past_length "
    "seqlen_offset seq_offset index_offset past_key_values_length offs",
    "cos": "cos cosine cosines cos_table",
    "sin": "sin sine sines sin_table",
    "freqs_cis": "freqs_cis freq_cis cis",
    "freqs": "freqs frequencies angles rotary_pos_emb",
}
BY_NAME: dict[str, Role] = {name: role for role, names in NAMES.items() for name in names.split()}
VECTORS = ("x", "q", "k", "v")


def read_form(form: str) -> tuple[Role, ...]:
    """Return the roles of a form as a user writes it: "q,k,positions"."""
    roles = tuple(role.strip() for role in form.split(","))
    wrong = [role for role in roles if role not in ROLES]
    if wrong or not {"x", "q"} & set(roles) or len(set(roles)) < len(roles):
        raise ValueError(
            f"form must name the role of each argument, x or q among them, separated by commas, "
            f"out of {', '.join(ROLES)}; got {shown(form)}"
        )
    return roles  # type: ignore[return-value]


def detect_form(function: Callable[..., Any]) -> tuple[Role, ...]:
    """Return the roles of the arguments by their names; the first is a vector.

    Optional arguments with an unknown name keep their default. Raises ValueError if a required
    argument has an unknown name.
    """
    roles: list[Role] = []
    for each in parameters_of(function):
        role = BY_NAME.get(each.name)
        required = each.default is each.empty
        if role is None and required and not any(known in VECTORS for known in roles):
            role = "x"
        if role is None and required:
            raise ValueError(
                f"form must be given: the argument {shown(each.name)} of the target has no known "
                f"role; write for instance form='q,k,positions', out of {', '.join(ROLES)}"
            )
        if role is None or (not required and role not in ("positions", "offset")):
            continue
        if role == "positions" and "cos" in roles and not required:
            continue  # an argument that transformers no longer reads
        if not required and {"positions", "offset"} & set(roles):
            continue  # one of them is enough
        if role not in roles:
            roles.append(role)
    if not any(role in VECTORS for role in roles):
        raise ValueError(
            "target must take the vectors to rotate, and no argument of it has a known name; state "
            "the roles of all arguments (form), as in form='x,positions'"
        )
    return tuple(roles)


def keywords_of(function: Callable[..., Any], roles: tuple[Role, ...]) -> dict[Role, str]:
    """Return the names of the arguments in these roles that must be passed by name.

    These are keyword-only arguments, and those after an optional argument that keeps its default.
    """
    named: dict[Role, str] = {}
    skipped = False
    for each in parameters_of(function):
        role = BY_NAME.get(each.name)
        if role not in roles:
            skipped = skipped or each.default is not each.empty
        elif skipped or each.kind is each.KEYWORD_ONLY:
            named[role] = each.name
    return named


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function or of a module's forward."""
    called = function.forward if isinstance(function, nn.Module) else function
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        raise ValueError(
            f"form must be given: the arguments of {shown(function)} cannot be read; write for "
            f"instance form='q,k,positions'"
        ) from None
    return [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def head_dims(function: Callable[..., Any]) -> list[int]:
    """Return head sizes to try, the likeliest first: those of a module, then usual ones."""
    found: list[int] = []
    owner = getattr(function, "__self__", function)
    for name in ("head_dim", "dim", "rotary_dim", "dim_head", "d_head", "d"):
        value = getattr(owner, name, None)
        if isinstance(value, int) and not isinstance(value, bool):
            found.append(value)
    if isinstance(owner, nn.Module):
        for tensor in (*owner.buffers(), *owner.parameters()):
            if tensor.ndim:
                found += [tensor.shape[-1] * 2, tensor.shape[-1]]
    found += [64, 128, 32, 96, 80, 256, 16, 8]
    return [dim for dim in dict.fromkeys(found) if 2 <= dim <= 1024]
