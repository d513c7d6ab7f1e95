"""How a target is called: the roles of its arguments, the size of heads, the order of axes.

Roles come from the names of the arguments. Size and order are found by trial, unless they are
given. A `Target` then has one form for all: vectors `(B, H, S, D)` and positions in, rotated
vectors out.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from types import MethodType
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ropewalk.checks import check_int, shown
from ropewalk.rotary.module import RotaryEmbedding
from ropewalk.rotary.rotate import rotate
from ropewalk.rotary.spec import RotarySpec
from ropewalk.rotary.tables import Tables

Role = Literal[
    "x", "q", "k", "v", "positions", "offset", "cos", "sin", "freqs_cis", "freqs",
    "old_positions", "new_positions",
]  # fmt: skip
ROLES: tuple[Role, ...] = get_args(Role)

#: Names that code gives to its arguments. Only exact names count.
NAMES: dict[Role, str] = {
    "q": "q query queries xq q_states query_states q_in",
    "k": "k key keys xk k_states key_states k_in",
    "v": "v value values xv v_states value_states",
    "x": "x t u inp input inputs tensor hidden hidden_states h states vec vectors",
    "positions": "cache_position positions position pos position_ids pos_ids input_pos "
    "positions_ids pos_idx ids idx indices m seq_pos token_positions coords coordinates",
    "offset": "offset start start_pos start_position start_index past past_length "
    "seqlen_offset seq_offset index_offset past_key_values_length offs",
    "cos": "cos cosine cosines cos_table",
    "sin": "sin sine sines sin_table",
    "freqs_cis": "freqs_cis freq_cis cis",
    "freqs": "freqs frequencies angles rotary_pos_emb",
    "old_positions": "old_positions old_position_ids old_pos old from_positions",
    "new_positions": "new_positions new_position_ids new_pos new to_positions",
}
BY_NAME: dict[str, Role] = {name: role for role, names in NAMES.items() for name in names.split()}
VECTORS, TABLES = ("x", "q", "k", "v"), {"cos", "sin", "freqs_cis", "freqs"}


def read_form(form: str) -> tuple[Role, ...]:
    """Return the roles of a form as a user writes it: "q,k,positions"."""
    roles = tuple(role.strip() for role in form.split(","))
    wrong = [role for role in roles if role not in ROLES]
    first = {"x", "q", "k"} if "new_positions" in roles else {"x", "q"}
    named = first & set(roles) or roles == ("positions",)  # which returns tables
    if wrong or not named or len(set(roles)) < len(roles):
        raise ValueError(
            f"form must name the role of each argument, x or q among them, separated by commas, "
            f"out of {', '.join(ROLES)}; got {shown(form)}"
        )
    return roles  # type: ignore[return-value]


def detect_form(function: Callable[..., Any]) -> tuple[Role, ...]:
    """Return the roles of the arguments by their names: vectors, or positions to make tables of.

    Optional arguments with an unknown name keep their default. Raises ValueError if a required
    argument has an unknown name.
    """
    roles: list[Role] = []
    for each in parameters_of(function):
        role = BY_NAME.get(each.name)
        if each.default is not each.empty:
            # Beside tables, transformers no longer reads positions; one of the two is enough.
            useless = {"positions", "offset", *(["cos"] if role == "positions" else [])}
            if role not in ("positions", "offset") or useless & set(roles):
                continue
        elif role is None and any(known in VECTORS for known in roles):
            raise ValueError(
                f"form must be given: the argument {shown(each.name)} of the target has no known "
                f"role; write for instance q,k,positions, out of {', '.join(ROLES)}"
            )
        if (role or "x") not in roles:
            roles.append(role or "x")
    if not {*VECTORS, "positions"} & set(roles):
        raise ValueError(
            "target must take the vectors to rotate, and no argument of it has a known name; state "
            "the roles of all arguments (form), as in x,positions"
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
            f"instance q,k,positions"
        ) from None
    return [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def head_dims(function: Callable[..., Any]) -> list[int]:
    """Return head sizes to try, the likeliest first: those of a module, then usual ones."""
    owner = getattr(function, "__self__", function)
    names = ("head_dim", "dim", "rotary_dim", "dim_head", "d_head", "d")
    dims = [x for x in (getattr(owner, name, None) for name in names) if type(x) is int]
    if isinstance(owner, nn.Module):
        sizes = [x.shape[-1] for x in (*owner.buffers(), *owner.parameters()) if x.ndim]
        dims += [dim for size in sizes for dim in (2 * size, size)]
    dims += [64, 128, 32, 96, 80, 256, 16, 8]
    return [dim for dim in dict.fromkeys(dims) if 2 <= dim <= 1024]


TableForm = Literal["none", "pairs", "half", "interleaved"]


class TargetError(ValueError):
    """The target raised, or returned something that is not the rotated vectors."""


@dataclass(frozen=True)
class Target:
    """A function, and how to call it.

    roles: of its arguments. keywords: the names of those that must be passed by name. seq_dim: -2
    for (B, H, S, D), -3 for (B, S, H, D). batched_positions: whether positions are (B, S), not
    (S,). steps: if positions have several axes, 1 for those on which they are those of the call, 0
    for those on which they are 0. axis_dim: the dimension of axes. tables: how cos and sin are laid
    out if the target takes them: R/2 columns, or R with the halves or the neighbors the same.
    tables_of: makes them. makes_tables: whether the target returns tables, which `rotate` then
    applies. ignores_positions: whether the target was found to ignore them, so that calls must
    start at position 0. axes_stated: whether the user said the order of axes. along_heads: whether
    what it rotates along is, in that order, the axis of heads. moved_from: the old positions of a
    target that moves keys from old positions to new ones. unit: the distance of coordinates.
    """

    function: Callable[..., Any]
    roles: tuple[Role, ...]
    head_dim: int
    keywords: Mapping[Role, str] = field(default_factory=dict)
    seq_dim: int = -2
    batched_positions: bool = False
    steps: tuple[int, ...] = ()
    axis_dim: int = 0
    position_dtype: torch.dtype = torch.int64
    tables: TableForm = "none"
    tables_of: Callable[[Tensor], Tables] | None = None
    makes_tables: bool = False
    ignores_positions: bool = False
    axes_stated: bool = False
    along_heads: bool = False
    moved_from: int | Tensor = 0
    unit: float = 1.0
    spec: RotarySpec | None = None

    @property
    def takes(self) -> Literal["positions", "offset", "nothing"]:
        """How positions reach the target; tables of ours count as positions."""
        if self.ignores_positions:
            return "nothing"
        if "positions" in self.roles or self.tables_of is not None or self.moves:
            return "positions"
        return "offset" if "offset" in self.roles else "nothing"

    @property
    def moves(self) -> bool:
        """Whether it moves rotated keys; the positions of a call are then the new ones."""
        return "new_positions" in self.roles

    @property
    def rotates(self) -> tuple[Role, ...]:
        """The roles of the vectors that it takes; x is for those that its tables rotate."""
        return tuple(role for role in self.roles if role in VECTORS) or ("x",)

    @property
    def must_rotate(self) -> tuple[Role, ...]:
        """The roles of the vectors that it must return rotated: all but values."""
        return tuple(role for role in self.rotates if role != "v")

    @property
    def form(self) -> str:
        """How it is called, as in "f(q, k, positions) with (B, H, S, D), D = 64"."""
        makes = ", returns cos and sin" if self.makes_tables else ""
        tried = "" if self.spec is not None else ", found by trial"
        call = f"f({', '.join(self.roles)}) with {ORDER[self.seq_dim]}"
        floats = " of floats" * self.position_dtype.is_floating_point
        shape = SHAPES[self.batched_positions, self.axis_dim]
        at = f", positions {shape}{floats}" if self.steps else ""
        return f"{call}, D = {self.head_dim}{at}{tried}{makes}"

    def fresh(self) -> Target:
        """Return this target as it was before the first call, if it is a module or its method."""
        if isinstance(self.function, (nn.Module, MethodType)):
            return replace(self, function=copy.deepcopy(self.function))
        return self

    @property
    def module(self) -> nn.Module | None:
        """The module that it is, or of which it is a method."""
        owner = getattr(self.function, "__self__", self.function)
        return owner if isinstance(owner, nn.Module) else None

    @property
    def dtypes(self) -> set[torch.dtype]:
        """The dtypes of the module's parameters and buffers."""
        of = self.module
        return {x.dtype for x in (*of.parameters(), *of.buffers())} if of is not None else set()

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x `(B, H, S, D)` as the target rotates it at positions `(S,)` or `(B, S)`."""
        return self.rotate_all(x, positions)[self.rotates[0]]

    def rotate_all(
        self, vectors: Mapping[Role, Tensor] | Tensor, positions: Tensor
    ) -> dict[Role, Tensor]:
        """Return all vectors as the target returns them. Raises TargetError.

        vectors: by role, or the same for all roles.
        """
        if isinstance(vectors, Tensor):
            vectors = dict.fromkeys(self.rotates, vectors)
        if self.takes != "positions":
            first = int(positions[0])
            contiguous = torch.equal(positions, torch.arange(first, first + len(positions)))
            if not contiguous or (first and self.takes == "nothing"):
                raise TargetError("takes no positions")
        inputs = {role: self._turned(x).clone() for role, x in vectors.items()}
        returned = self._call(inputs, positions)
        if self.makes_tables:
            role = self.rotates[0]
            return {role: self._with_tables(vectors[role], returned)}
        outputs = returned if isinstance(returned, (tuple, list)) else (returned,)
        if len(outputs) < len(self.must_rotate):
            needed = " and ".join(self.must_rotate)
            raise TargetError(f"returned {len(outputs)} tensor for {needed}")
        rotated = {}
        for (role, x), y in zip(inputs.items(), outputs, strict=False):
            if not isinstance(y, Tensor) or y.shape != x.shape:
                got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
                raise TargetError(f"returned {got} for {role} of shape {tuple(x.shape)}")
            if not y.is_floating_point():
                raise TargetError(f"returned {y.dtype} for {role}".replace("torch.", ""))
            rotated[role] = self._turned(y)
        return rotated

    def changes_input(self, x: Tensor, positions: Tensor) -> bool:
        """Return whether a call changes the tensors that it is given."""
        inputs = {role: self._turned(x).clone() for role in self.rotates}
        self._call(inputs, positions)
        return any(not torch.equal(y, self._turned(x)) for y in inputs.values())

    def _turned(self, x: Tensor) -> Tensor:
        return x.transpose(-2, -3) if self.seq_dim == -3 else x

    def _call(self, inputs: Mapping[Role, Tensor], positions: Tensor) -> Any:
        made: dict[str, Any] = {str(role): x for role, x in inputs.items()}
        at = {"positions": positions, "new_positions": positions}
        at["old_positions"] = torch.zeros_like(positions) + self.moved_from
        rows = len(next(iter(inputs.values())))
        made |= {name: self._passed(each, rows) for name, each in at.items()}
        if "offset" in self.roles:
            made["offset"] = int(positions.flatten()[0])
        if self.tables_of is not None:
            made |= self._tables(*self.tables_of(positions), positions.ndim == 1)
        plain = [made[role] for role in self.roles if role not in self.keywords]
        named = {self.keywords[role]: made[role] for role in self.keywords}
        try:
            return self.function(*plain, **named)
        except (Exception, SystemExit) as error:
            says = " ".join(str(error).split()) or "no message"
            raise TargetError(f"{type(error).__name__}: {shown(says, 160)}") from error

    def _passed(self, positions: Tensor, rows: int) -> Tensor:
        """Return positions (S,) or (B, S) in the form in which they are passed."""
        if self.batched_positions and positions.ndim == 1:
            positions = positions.expand(rows, -1)
        if self.unit != 1.0:
            positions = positions * self.unit
        if self.steps:
            positions = torch.stack([positions * step for step in self.steps], self.axis_dim)
        return positions.to(self.position_dtype)

    def _tables(self, cos: Tensor, sin: Tensor, of_one_row: bool) -> dict[str, Tensor]:
        made = {"cos": cos, "sin": sin, "freqs": torch.atan2(sin, cos)}
        if self.tables == "half":
            made = {name: torch.cat((t, t), -1) for name, t in made.items()}
        elif self.tables == "interleaved":
            made = {name: t.repeat_interleave(2, -1) for name, t in made.items()}
        made["freqs_cis"] = torch.complex(cos, sin)
        if self.batched_positions and of_one_row:
            made = {name: table.unsqueeze(0) for name, table in made.items()}
        return made

    def _with_tables(self, x: Tensor, returned: Any) -> Tensor:
        cos, sin = read_tables(returned, x.shape[-2])
        pairing = "half" if self.spec is None else self.spec.pairing
        start = 0 if self.spec is None else self.spec.start
        try:
            return rotate(x, cos, sin, pairing=pairing, start=start)
        except (TypeError, ValueError) as error:
            raise TargetError(f"returned no tables for {tuple(x.shape)}: {error}") from error


def read_tables(returned: Any, length: int) -> Tables:
    """Return cos and sin `(…, S, R/2)` of what a module returned. Raises TargetError."""
    if isinstance(returned, Tensor) and returned.is_complex():
        returned = (returned.real, returned.imag)
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise TargetError("returned no pair of cos and sin")
    cos, sin = (t.detach() for t in returned)
    while cos.ndim > 2 and cos.shape[0] == 1:
        cos, sin = cos[0], sin[0]
    if cos.shape != sin.shape or cos.ndim < 2 or cos.shape[-2] != length:
        raise TargetError(f"returned tables of shapes {tuple(cos.shape)} and {tuple(sin.shape)}")
    half = cos.shape[-1] // 2
    dtype = torch.float64 if cos.dtype == torch.float64 else torch.float32
    cos, sin = cos.to(dtype), sin.to(dtype)
    halves, neighbors = (slice(half), slice(half, None)), (slice(0, None, 2), slice(1, None, 2))
    for first, second in (halves, neighbors):
        if all(torch.equal(t[..., first], t[..., second]) for t in (cos, sin)):
            return cos[..., first], sin[..., first]
    return cos, sin


MOST_DIMS = 2_048
SEQ_DIM = {"bhsd": -2, "bshd": -3}
ORDER = {-2: "(B, H, S, D)", -3: "(B, S, H, D)"}
BEST = 2.0
FIRST, LENGTH, HEADS = 3, 7, 2  # the first call is not at position 0, so that its cache shows
DTYPES = [torch.int64, torch.float32, torch.float64]
#: Whether positions have a batch, and where their axes are if they have several.
SHAPES = {
    (False, 0): "(A, S)", (True, 0): "(A, B, S)",
    (False, -1): "(S, A)", (True, -1): "(B, S, A)", (True, 1): "(B, A, S)",
}  # fmt: skip


def resolve(
    function: Callable[..., Any],
    *,
    form: str | None = None,
    axes: str | None = None,
    head_dim: int | None = None,
    spec: RotarySpec | None = None,
    length: int | None = None,
    unit: float = 1.0,
) -> Target:
    """Return the target with the call form that works.

    unit: how far apart the coordinates of places are. Each form is tried on a copy if the target is
    a module. Raises TargetError if none works, and other ValueErrors for arguments that cannot be
    used.
    """
    if not callable(function):
        raise TypeError(f"target must be a function or module, got {shown(function)}")
    if axes is not None and axes not in SEQ_DIM:
        raise ValueError(f"axes must be bhsd or bshd, got {shown(axes)}")
    orders = list(ORDER) if axes is None else [SEQ_DIM[axes]]
    if head_dim is not None:
        check_int("head_dim", head_dim, 2)
        if head_dim > MOST_DIMS:
            raise ValueError(f"head_dim must be at most {MOST_DIMS:,}, got {head_dim:,}")
        if spec is not None and head_dim != spec.head_dim:
            raise ValueError(
                f"head_dim must be that of like, {spec.head_dim}, got {head_dim}; leave it out"
            )
    roles = detect_form(function) if form is None else read_form(form)
    if ("old_positions" in roles) != ("new_positions" in roles):
        raise ValueError(
            f"form must have old_positions and new_positions or neither, got {', '.join(roles)}"
        )
    stated = head_dim if spec is None else spec.head_dim
    if stated is not None and stated > MOST_DIMS:
        raise ValueError(
            f"like must have heads of at most {MOST_DIMS:,} dimensions to be measured, "
            f"got {stated:,}; a rope over all heads (LTX) can be verified with fewer of them"
        )
    dims = head_dims(function) if stated is None else [stated]
    failures: list[str] = []
    base = Target(function, roles, dims[0], keywords_of(function, roles), spec=spec, unit=unit)
    if spec is not None and base.takes == "positions" and not TABLES & set(roles):
        base = replace(base, steps=(1,) * spec.axis_count * (spec.axis_count > 1))
    grade, target = _best(_candidates(base, orders, dims, length), failures)
    wanted = len(base.steps)
    for count in range(wanted + 2) if wanted and not grade else ():  # 0: as text has
        others = _candidates(replace(base, steps=(1,) * count), orders, dims, length)
        grade, found = _best(others, [])
        if grade and count:
            says = f"positions must have {wanted} axes, as in like; the target takes {count}"
            raise TargetError(says)
        if grade:
            target = found
            break
    if axes is not None and not grade:
        rest = [order for order in ORDER if order not in orders]
        grade, other = _best(_candidates(base, rest, dims, length), [])
        if grade and other is not None and not other.makes_tables:
            return replace(other, seq_dim=orders[0], axes_stated=True, along_heads=True)
    if target is None:
        shapes = " or ".join(ORDER[order] for order in orders)
        raise TargetError(
            f"target must rotate vectors of {shapes} when called as f({', '.join(roles)}), or "
            f"return cos and sin; no call worked: {failures[0]}; state other roles (form), axes or "
            f"head_dim, or wrap it in a function of x (B, H, S, D)"
        )
    return replace(target, axes_stated=axes is not None)


def _best(candidates: Iterator[Target], failures: list[str]) -> tuple[float, Target | None]:
    """Return the highest grade, and the first candidate that has it; add why others failed."""
    best: tuple[float, Target | None] = (0.0, None)
    for target in candidates:
        try:
            grade = _grade(target.fresh())
        except TargetError as error:
            failures.append(str(error))
            continue
        if grade > best[0] or best[1] is None:
            best = grade, target
        if grade == BEST:
            break
    return best


def _candidates(
    base: Target, orders: list[int], dims: list[int], length: int | None
) -> Iterator[Target]:
    takes_tables = bool(TABLES & set(base.roles))
    forms: tuple[TableForm, ...] = ("half", "pairs", "interleaved") if takes_tables else ("none",)
    shapes = list(SHAPES)[: 5 if base.steps else 2]
    shapes = shapes if takes_tables or base.takes == "positions" else shapes[:1]
    dtypes = DTYPES if base.steps else DTYPES[:1]
    if base.spec is not None and base.spec.continuous:
        dtypes = DTYPES[1:]
    tried = product(dims, orders, dtypes, shapes, forms)
    for dim, seq_dim, dtype, (with_batch, axis_dim), tables in tried:
        of = _tables_of(base.spec or RotarySpec(head_dim=dim), length) if takes_tables else None
        sized = replace(base, head_dim=dim, seq_dim=seq_dim, position_dtype=dtype)
        at = replace(sized, batched_positions=with_batch, axis_dim=axis_dim)
        plain = replace(at, tables=tables, tables_of=of)
        yield plain
        if not takes_tables and len(plain.rotates) == 1 and seq_dim == orders[0]:
            # In one block, because tables have no pairs.
            one = base.spec and replace(base.spec, blocks=None, write_pairing=base.spec.pairing)
            yield replace(plain, seq_dim=-2, makes_tables=True, spec=one)


def _tables_of(spec: RotarySpec, length: int | None) -> Callable[[Tensor], Tables]:
    rope = RotaryEmbedding(spec)

    def tables(positions: Tensor) -> Tables:
        if spec.axis_count > 1:
            positions = positions.expand(spec.axis_count, *positions.shape)
        return rope.tables(positions, length)

    return tables


def _grade(target: Target) -> float:
    """Return how well a call works: 0 if it answers, 1 if it rotates, `BEST` if just as specified.

    It rotates if results vary along the sequence and not along heads. With tables of ours, lengths
    and position 0 must stay as they are too, and best is what leaves the dimensions alone that the
    specification leaves alone. Raises TargetError.
    """
    first = FIRST if target.takes != "nothing" else 0
    y = target.rotate(
        torch.ones(1, HEADS, LENGTH, target.head_dim), torch.arange(first, first + LENGTH)
    )
    moves = (y - y[:, :, :1]).abs().amax() > 1e-4
    same_heads = (y - y[:, :1]).abs().amax() < 1e-4
    if not (torch.isfinite(y).all() and moves and same_heads):
        return 0
    if target.tables_of is None:
        return BEST
    generator, at = torch.Generator().manual_seed(0), torch.arange(LENGTH)
    x = torch.randn(1, HEADS, LENGTH, target.head_dim, generator=generator)
    y = target.rotate(x, at)
    part = torch.ones(target.head_dim, dtype=torch.bool)
    if (spec := target.spec) is not None:
        part[: spec.start] = part[spec.start + int(spec.rotary_dim) :] = False
    # If half a head rotates, tables in halves have as many columns as those of pairs of all of it.
    keeps_rest = bool((y - x)[..., ~part].abs().le(1e-4).all())
    x, y = x[..., part], y[..., part]
    kept = (y.norm(dim=-1) / x.norm(dim=-1)).std() < 1e-4
    at_zero = (y[:, :, 0].sort().values / x[:, :, 0].sort().values).std() < 1e-4
    return 1 + keeps_rest if kept and at_zero else 0
