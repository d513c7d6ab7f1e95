"""For the adapters in Python: which vectors a library is asked, and the heads of a vector.

It imports PyTorch only as it makes a tensor, since some libraries have none beside them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Vector = dict[str, Any]
Result = Any  # None for what is not offered
Level = Callable[[Vector], Result]
ORIGINAL = "original_max_position_embeddings"
EVERY = ("all", "first", "last")


def named(vector: Vector) -> tuple[str, str, str, str]:
    """Return the names of a vector's order of axes, its pairing, its part of a head, its rule.

    One axis has the order "one". Two rules have the rope_type "dynamic" beside the one of that
    name: "ntk-aware" and "qwen-ntk".
    """
    rope, scaling = vector["rope"], vector["rope"]["scaling"]
    order = vector["order"] if vector["config"] is None else "of a model"
    read, write = rope["pairing"], rope["write_pairing"]
    part = "last" if rope["start"] else "first"
    rule = "qwen-ntk" if "use_dynamic_ntk" in scaling else scaling["rope_type"]
    return (
        order if rope["axes"] else "one",
        read if read == write else f"{read}-to-{write}",
        part if rope["rotary_dim"] < rope["head_dim"] else "all",
        "ntk-aware" if "alpha" in scaling else rule,
    )


def sections(rope: Vector) -> list[int]:
    """Return how many pairs each of three axes has."""
    return [sum(axis == n for axis, _, _ in rope["axes"]) for n in range(3)]


@dataclass(frozen=True)
class Offer:
    """Ropes that a library offers: `vector in offer` tells whether the vector has one of them.

    None is any. lacks: fields of a rule that are not taken. models: the model_type of a
    config.json. end: positions lie from 0 to before it. No library rotates cached keys again.
    """

    pairings: tuple[str, ...] = ("half", "interleaved")
    parts: tuple[str, ...] = ("all",)
    rules: tuple[str, ...] | None = ("default",)
    orders: tuple[str, ...] | None = ("one",)
    lacks: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None
    end: int | None = None
    reverse: bool = False

    def __contains__(self, vector: Vector) -> bool:
        (order, pairing, part, rule), rope, config = named(vector), vector["rope"], vector["config"]
        return (
            pairing in self.pairings
            and part in self.parts
            and (self.rules is None or rule in self.rules)
            and (self.orders is None or order in self.orders)
            and not set(self.lacks) & set(rope["scaling"])
            and (self.models is None or config is None or config["model_type"] in self.models)
            and (self.end is None or all(0 <= at < self.end for at in vector["positions"]))
            and (self.reverse or not rope["reverse"])
            and vector["cached"] is None
            and rope["amplitude"] == 1
        )


def asked(*offers: Offer) -> Callable[[Level], Level]:
    """Let a function return None for a vector of none of the offers."""

    def decorated(function: Level) -> Level:
        return lambda vector: function(vector) if any(vector in each for each in offers) else None

    return decorated


def dims(rope: Vector, cut: bool) -> slice:
    """Return the dimensions of a head; cut: those that rotate."""
    return slice(rope["start"], rope["start"] + rope["rotary_dim"]) if cut else slice(None)


def arrays(vector: Vector, cut: bool = False) -> list[np.ndarray]:
    """Return q and k, (S, D) each, or the one that the vector has. cut: of what rotates."""
    given = [np.array(vector[name]) for name in ("q", "k") if vector[name]]
    return [x[:, dims(vector["rope"], cut)] for x in given]


def heads(vector: Vector, cut: bool = False) -> list[Any]:
    """Return the arrays as tensors of PyTorch, (1, 1, S, D) each, in the vector's dtype."""
    import torch

    dtype = getattr(torch, vector["dtype"])
    return [torch.tensor(x).to(dtype)[None, None] for x in arrays(vector, cut)]


def joined(vector: Vector, turned: list[Any], cut: bool = False) -> list[np.ndarray]:
    """Return q and k as they were turned: arrays, or tensors of PyTorch or tinygrad."""
    results = arrays(vector)
    for x, new in zip(results, turned, strict=False):
        y = new.detach().float().numpy() if hasattr(new, "detach") else new
        x[:, dims(vector["rope"], cut)] = y.reshape(len(x), -1)
    return results


def once(table: Any, pairing: str) -> Any:
    """Return a table, (S, R), whose numbers are all there twice, without the second ones."""
    return table[:, ::2] if pairing == "interleaved" else table[:, : table.shape[-1] // 2]
