"""Checks of calls as a model makes them: one token, many heads, rows of positions."""

from __future__ import annotations

from dataclasses import replace

import torch

from ropewalk.tools.verify.call_form import ORDER, Target, TargetError
from ropewalk.tools.verify.function_checks import AT, SAME, SHORT, far, random
from ropewalk.tools.verify.verify_report import Check, fault, remark, right

TOKEN = 7  # the position of a token alone
HEADS, KEY_HEADS = 24, (2, 1)
ROWS, ROW_HEADS = 2, 3  # different, so that rows of positions cannot pass as those of heads


def check_axes(target: Target) -> list[Check]:
    """Say if the order of axes was found by trial, although the other order is answered too."""
    if target.along_heads:
        stated, found = ORDER[target.seq_dim], ORDER[-5 - target.seq_dim]
        says = (
            f"rotates along the axis of heads of {stated}; if its vectors are {found}, state that "
            f"order (axes)"
        )
        return [fault("axes", "heads", says)]
    if target.axes_stated or target.makes_tables:
        return []
    other = replace(target, seq_dim=-5 - target.seq_dim)
    x, at = random(target, SHORT, heads=ROW_HEADS), AT if target.takes == "nothing" else AT + 1
    try:
        if far(other.fresh().rotate(x, at), x) <= SAME:
            return []
    except TargetError:
        return []
    says = (
        f"{ORDER[target.seq_dim]} was found by trial; {ORDER[other.seq_dim]} is answered too, and "
        f"rotated along the axis of heads: state the order (axes) to have it checked"
    )
    return [remark("axes", says)]


def check_one_token(target: Target) -> list[Check]:
    """Check that a call of one token, as in decoding, rotates it as a longer call does."""
    name, at = "one token", 0 if target.takes == "nothing" else TOKEN
    if target.makes_tables and not at:
        return []  # cosines of 1 alone do not show how they are laid out
    x = random(target, SHORT, batch=2, heads=2)[:, :, at : at + 1]
    tried = target.fresh().rotate_all(x.expand(-1, -1, SHORT, -1), AT)
    for rows in (1, 2):
        try:
            alone = target.fresh().rotate_all(x[:rows], AT[at : at + 1])
        except TargetError as error:
            return [fault(name, "fails", f"a call of one token raises: {error}")]
        for role, y in alone.items():
            errors = [far(y, tried[role][:rows, :, p : p + 1]) for p in range(SHORT)]
            if errors[at] <= SAME:
                continue
            like = min(range(SHORT), key=errors.__getitem__)
            explained = errors[like] <= SAME
            off = f"otherwise than in longer calls, off by {errors[at]:.3g}"
            found = f"like position {like}" if explained else off
            argument = "offset" if target.takes == "offset" else "positions"
            kind = f"{argument}-ignored" if explained and not like else "history"
            of = f" of {role}" if len(target.rotates) > 1 else ""
            says = f"in calls of one token, position {at}{of} is rotated {found}"
            return [fault(name, kind, says, error=errors[at])]
    return [right(name, "a token is rotated alone as in a longer call")]


def check_heads(target: Target) -> list[Check]:
    """Check that each head is rotated as it is alone, also with fewer key heads than query heads.

    The latter is grouped-query attention.
    """
    x = random(target, SHORT, heads=HEADS)
    alone = target.fresh().rotate_all(x.transpose(0, 1), AT)
    grouped = {"q", "k"} <= set(target.rotates)
    for keys in (HEADS, *KEY_HEADS) if grouped else (HEADS,):
        few = f"with fewer key heads than query heads, {keys} and {HEADS}, " * (keys < HEADS)
        given = {role: x[:, : keys if role in "kv" else HEADS] for role in target.rotates}
        try:
            made = target.fresh().rotate_all(given, AT)
        except TargetError as error:
            return [fault("heads", "fails", f"{few}a call raises: {error}")]
        for role, y in made.items():
            if (off := far(y.transpose(0, 1), alone[role][: y.shape[1]])) > SAME:
                says = f"{few}heads of {role} differ by {off:.3g} from themselves alone"
                return [fault("heads", "heads", says, error=off)]
    also = ", also with fewer key heads than query heads" if grouped else ""
    return [right("heads", f"each of {HEADS} heads as it is alone{also}")]


def check_rows(target: Target) -> list[Check]:
    """Check positions that restart within a row, and (B, S), whose rows have their own."""
    if target.takes != "positions" or target.tables_of is not None:
        return []
    x, middle = random(target, SHORT, batch=ROWS, heads=ROW_HEADS), SHORT // 2
    packed = target.fresh().rotate(x, AT % middle)[:, :, middle:]
    if far(packed, target.fresh().rotate(x[:, :, middle:], AT[:middle])) > SAME:
        says = "positions that restart, as in packed documents, are not followed"
        return [fault("packed", "positions-ignored", says)]
    checks = [right("packed", "positions may restart, as in packed documents")]
    rows = torch.stack((AT, AT + 7))
    old = rows.flip(0) if target.moves else torch.zeros_like(rows)
    for count in (SHORT, 1):  # of all tokens, and as in decoding
        part, at, since = x[:, :, -count:], rows[:, -count:], old[:, -count:]
        try:
            served = replace(target, batched_positions=True, moved_from=since)
            together = served.fresh().rotate(part, at)
        except TargetError as error:
            says = f"(B, S), a row for each sequence, raise: {error}; (S,) are served"
            return [*checks, remark("rows of positions", says)]
        each = [replace(target, moved_from=row).fresh() for row in since]
        alone = [one.rotate(part[i : i + 1], at[i]) for i, one in enumerate(each)]
        if far(together, torch.cat(alone)) > SAME:
            says = "rows with positions of their own, as in left padding, are wrong"
            of_one = " in calls of one token" if count == 1 else ""
            return [*checks, fault("padded", "batch", says + of_one)]
    return [*checks, right("padded", "rows may have positions of their own")]
