"""A training step over a sequence that several processes share, compared with one process."""

from itertools import pairwise
from unittest.mock import patch

import torch
from torch.nn.functional import cross_entropy

from ropewalk.encodings import build
from ropewalk.lab.training.process_group import join
from ropewalk.model import ContextPart, LanguageModel, TransformerShape, initialize
from ropewalk.model import context as module

LENGTH, VOCABULARY = 24, 50
DOCUMENTS = [0, 7, 8, 19, 24]  # some across parts, one inside of one
SHAPE = TransformerShape(VOCABULARY, 32, 4, 64, 2, 2, kv_heads=2)


def new_model(encoding, causal):
    model = LanguageModel(SHAPE, build(encoding, SHAPE.stack_shape(causal=causal)), causal=causal)
    initialize(model, 1)
    return model.double()


def sequences():
    return torch.randint(VOCABULARY, (2, 2, LENGTH), generator=torch.Generator().manual_seed(3))


def loss_of(model, hidden, targets):
    return cross_entropy(model.logits(hidden).flatten(0, 1), targets.flatten(), reduction="sum")


def unsharded(model, packed):
    """Return the output and gradients of the complete sequence, document by document."""
    tokens, targets = sequences()
    bounds = DOCUMENTS if packed else [0, LENGTH]
    parts = [model(tokens[:, a:b]) for a, b in pairwise(bounds)]
    hidden = torch.cat(parts, 1)
    loss_of(model, hidden, targets).backward()
    return hidden.detach(), gradients(model)


def gradients(model):
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def differences(cases):
    """Return, for each case, the largest differences of outputs and gradients on this process."""
    group = join("cpu")
    tokens, targets = sequences()
    found = []
    for encoding, scheme, packed, causal in cases:
        model = new_model(encoding, causal)
        whole, expected = unsharded(model, packed)
        part = ContextPart(LENGTH, scheme=scheme, cu_seqlens=DOCUMENTS if packed else None)
        assert part.world == group.world
        with part:
            hidden = model(part.cut(tokens), context=part)
            loss_of(model, hidden, part.cut(targets)).backward()
        part.sum_gradients(model.parameters())
        own = gradients(model)
        assert part.gather(hidden.detach()).shape == whole.shape
        output = (part.gather(hidden.detach()) - whole).abs().max()
        gradient = max((own[n] - expected[n]).abs().max() for n in expected)
        found.append([float(output), float(gradient)])
    return found


def differences_with(fault, cases):
    """Return the differences with a planted fault."""
    gather = module.ContextPart.gather
    owner, name, wrong = {
        "keys are not gathered": (module._GatheredKeys, "append", _only_own_keys),
        "gradients stay where they are": (
            module.ContextPart, "sum_gradients", lambda part, parameters: None,
        ),
        "gathered keys have no gradients": (
            module.ContextPart, "gather", lambda part, x, dim=1: gather(part, x.detach(), dim),
        ),
    }[fault]  # fmt: skip
    with patch.object(owner, name, wrong):
        return differences(cases)


def _only_own_keys(cache, keys, values):
    """Attend to this part's keys alone; those of other parts are zeros."""
    part = cache.part
    both = torch.stack((keys, values))
    whole = both.new_zeros(*both.shape[:-2], part.length, both.shape[-1])
    return tuple(whole.index_copy(-2, part.places, both))
