"""Tries each encoding before training: decoding on a cache must equal computing all anew."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.checks import shown
from ropewalk.encodings import AttentionEncoding, Encoding, Placement
from ropewalk.encodings.outside import foreign_code
from ropewalk.lab.config import Config
from ropewalk.model import Attention, TransformerShape
from ropewalk.model.attention import self_placement

TOKENS, MEMORY = 5, 4
TOLERANCE = 5e-5  # rounding of float32 is below 5e-6 here
#: What each member of AttentionEncoding must do, which an encoding that decodes wrong breaks.
RULES = {
    "rotate": "rotate must rotate q to placement.queries and k to placement.new_keys (not .keys), "
    "and take None for k, if a cache has all keys",
    "rotate_values": "rotate_values must rotate v to placement.new_keys",
    "restore": "restore must rotate the output back by placement.queries",
    "bias": "bias must be (H, S, T), for placement.queries and placement.keys",
    "attend": "attend must take positions from placement.queries and placement.keys",
}


@torch.no_grad()
def check_encodings(configs: Iterable[Config], *, elsewhere: bool = False) -> None:
    """Raise ValueError if decoding with an encoding gives other results on a cache than without.

    It takes milliseconds on the CPU, and random states stay as they are. elsewhere: whether models
    train on another device, so that an encoding may be right although it fails on the CPU.
    """
    sizes = {replace(each.shape(1), dropout=0.0, feed_forward=1): each for each in configs}
    forgiven = (ValueError,) if elsewhere else ()
    for shape, config, name in ((s, c, n) for s, c in sizes.items() for n in c.encodings):
        what, rules = f"encoding {shown(name)}", ""
        with suppress(*forgiven), foreign_code(what, "fix it", "used"), torch.random.fork_rng([]):
            torch.default_generator.manual_seed(0)
            rules = _broken_rules(config.stacks(name), shape, config.task == "translation")
        if rules:
            raise ValueError(
                f"{what} decodes otherwise on a cache than without one: {rules}; fix it, or set "
                f'cached_keys = "none" in its AttentionEncoding, which decodes without a cache'
            )


def _broken_rules(stacks: dict[str, Encoding], shape: TransformerShape, beams: bool) -> str:
    """Return the rules of which the encoding breaks one: those of its own members; "" if none."""
    sites: dict[AttentionEncoding, str] = {}  # each once, and where it acts
    for place, stack in stacks.items():
        layers = shape.stack_shape(causal=place != "encoder").layers
        sites |= dict.fromkeys(map(stack.for_layer, range(layers)), place)
    cached = all(site.cached_keys != "none" for site in sites if sites[site] != "encoder")
    for parameter in nn.ModuleList([*stacks.values(), *sites]).eval().parameters():
        if parameter.is_floating_point():  # zeros at first would hide mistakes
            spread = torch.where(parameter == 0, 0.05, 0.1 * parameter.abs())
            parameter.add_(spread * torch.randn_like(parameter))
    x, memory = (torch.randn(2, n, shape.width) for n in (TOKENS, MEMORY))
    if cached and "decoder" in stacks:
        two, embed = torch.tensor([3, 3]), stacks["decoder"].embed
        if not _equal(embed(x[:, two], two), embed(x, torch.arange(TOKENS))[:, two]):
            return "embed must take the positions of x from its argument"
    attention = shape.new_attention(AttentionEncoding())  # one for all, which saves most time
    for site, place in sites.items():
        attention.encoding, source = site, memory if place == "cross" else None
        if place == "encoder" or not cached:
            attention(x, source, causal=place == "decoder")
        elif not _decodes_alike(attention, shape, x, source, beams):
            own, base = type(site), AttentionEncoding
            members = [name for name in RULES if getattr(own, name) is not getattr(base, name)]
            return "; ".join(RULES[name] for name in members or RULES)  # set on the instance
    return ""


def _decodes_alike(
    attention: Attention, shape: TransformerShape, x: Tensor, memory: Tensor | None, beams: bool
) -> bool:
    """Return whether each step of decoding on a cache equals computing all tokens anew."""
    cache, held = shape.new_cache(1, branching=beams), x[:, :0]
    for new in x.split((1, 2, 2) if beams else (3, 1, 1), 1):  # two beams, or a prompt first
        prefixes = [torch.cat((held, line), 1) for line in new.split(1 if beams else 3, 1)]
        n = new.shape[1] // len(prefixes)
        anew = [attention(p, memory, causal=memory is None).output[:, -n:] for p in prefixes]
        everything, seen = cache.add_tokens(new[..., 0])
        step = self_placement(everything, new.shape[1], attention.encoding)
        how: dict[str, Any] = {"cache": cache.own[0], "causal": seen is None}
        how["mask"] = None if seen is None else seen[:, None]
        if memory is not None:
            step, how = Placement(step.queries, torch.arange(MEMORY)), {"cache": cache.memory[0]}
        same = False
        with suppress(Exception):  # whatever its code raises
            same = _equal(attention(new, memory, placement=step, **how).output, torch.cat(anew, 1))
        if not same:
            return False
        held = prefixes[0]
        if beams:
            cache.follow(torch.zeros(len(x), 2, dtype=torch.int64))
    return True


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, TOLERANCE, TOLERANCE, equal_nan=True)
