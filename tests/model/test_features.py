"""Feature maps of linear attention and the names of their kinds.

These fail if random features estimate another kernel than exp(q·k/√D), if their rows are not
orthogonal, not uniform in direction or not as long as normal vectors, if rounding, moving, saving
or an empty start loses them, if they depend on anything but seed and name, and if a mistake in the
name of a kind is accepted.
"""

import copy
import itertools
import math
import pickle
import re

import encoding_cases as cases
import pytest
import torch
from encoding_cases import random
from torch import Tensor

from ropewalk.model import Transformer, TransformerShape, rotated_dim
from ropewalk.model.features import (
    Elu,
    EluFeatures,
    Performer,
    RandomFeatures,
    orthogonal_rows,
    parse_attention,
)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features_of(module: torch.nn.Module, x: Tensor) -> Tensor:
    values, log_scale = module(x)
    return values * log_scale.exp()[..., None]


def build_model(attention: str, layers: int = 2, seed: int = 0) -> Transformer:
    return cases.transformer("rotary", seed, layers, kind=attention).float()


# Random rows


@pytest.mark.parametrize(("count", "width"), [(3, 8), (8, 8), (20, 8), (2, 1), (7, 2)])
def test_rows_are_orthogonal_in_blocks(count, width):
    rows = orthogonal_rows(count, width, generator(0))
    assert rows.shape == (count, width)
    for block in rows.split(width):
        products = block @ block.T
        off = products - products.diag().diag()
        assert off.abs().max() < 1e-12
    if count > width:
        assert (rows[:width] @ rows[width:].T).abs().max() > 1e-3


def test_rows_are_distributed_like_normal_vectors():
    """Lengths squared have mean D and variance 2D; each column mean 0 and variance 1.

    The q of a QR decomposition as LAPACK gives it has a first entry of one sign: 80 σ off.
    """
    width, draws = 6, 4000
    rng = generator(1)
    rows = torch.stack([orthogonal_rows(width, width, rng) for _ in range(draws)])
    squares = rows.square().sum(-1)
    error = squares.std() / squares.numel() ** 0.5
    assert abs(squares.mean() - width) < 5 * error
    assert abs(squares.var() / (2 * width) - 1) < 0.1
    assert rows.mean(0).abs().max() < 5 / draws**0.5
    assert (rows.square().mean(0) - 1).abs().max() < 5 * 2**0.5 / draws**0.5


@pytest.mark.parametrize("count", [4, 24])
def test_features_estimate_the_softmax_kernel_without_bias(count):
    """Vectors are short, for estimates of long ones have tails that no mean of 1000 can meet."""
    x, y = 0.4 * random(2, 6, 8), 0.4 * random(2, 6, 8, seed=1)
    expected = (x @ y.mT / math.sqrt(8)).exp()
    module, estimates, rng = RandomFeatures(8, count), [], generator(2)
    for _ in range(1000):
        module.draw(rng)
        estimates.append(features_of(module, x) @ features_of(module, y).mT)
    drawn = torch.stack(estimates)
    assert (drawn > 0).all()
    error = drawn.std(0) / len(drawn) ** 0.5
    assert ((drawn.mean(0) - expected) / error).abs().max() < 5
    assert (error / expected).max() < 0.14


def test_more_features_come_closer_to_softmax():
    x, y = 0.5 * random(5, 16), 0.5 * random(40, 16, seed=1)
    exact = (x @ y.T / 4).softmax(-1)
    errors = []
    for count in (16, 256, 4096):
        products = sum(_products(count, x, y, seed) for seed in range(10))
        errors.append((products / products.sum(-1, keepdim=True) - exact).abs().mean())
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def _products(count: int, x: Tensor, y: Tensor, seed: int) -> Tensor:
    module = RandomFeatures(16, count)
    module.draw(generator(seed))
    return features_of(module, x) @ features_of(module, y).T


@pytest.mark.parametrize("size", [1.0, 60.0, 1000.0])
def test_features_of_long_vectors_keep_their_values(size):
    """Without a scale, exponentials of float32 are 0 or inf from a length of 20 on."""
    module, x = RandomFeatures(8, 16), size * random(5, 8)
    exact, rounded = module(x), module(x.float())
    assert (exact.values.amax(-1) == 1).all()
    error = 1e-6 * size**2
    torch.testing.assert_close(rounded.values.double(), exact.values, rtol=error, atol=1e-30)
    torch.testing.assert_close(rounded.log_scale.double(), exact.log_scale, rtol=1e-5, atol=1e-4)


def test_elu_features_are_exact_for_negative_numbers():
    x = torch.tensor([-80.0, -20.0, -3.0, 0.0, 2.5], requires_grad=True)
    values, log_scale = EluFeatures()(x)
    exact = x.detach().double()
    expected = torch.where(exact > 0, exact + 1, exact.exp())
    torch.testing.assert_close(values.double(), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(values, torch.nn.functional.elu(x) + 1, rtol=0, atol=1e-6)
    assert log_scale == 0
    values.sum().backward()
    torch.testing.assert_close(x.grad.double(), expected.clamp(max=1), rtol=1e-6, atol=0)


# Modules that have them


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.half(),
        lambda m: m.bfloat16(),
        lambda m: m.double(),
        lambda m: m.to(torch.float16).to("cpu").float(),
        copy.deepcopy,
        lambda m: pickle.loads(pickle.dumps(m)),
    ],
)
def test_features_survive_what_rounds_or_copies_a_model(change):
    model = build_model("performer(features=8)")
    held = [m.projection.clone() for m in model.modules() if isinstance(m, RandomFeatures)]
    changed = change(model)
    now = [m.projection for m in changed.modules() if isinstance(m, RandomFeatures)]
    assert len(now) == 6
    for before, after in zip(held, now, strict=True):
        assert after.dtype == torch.float32
        assert torch.equal(before, after)


@torch.no_grad()
@pytest.mark.parametrize("assign", [False, True])
def test_an_empty_model_gets_its_features_from_a_checkpoint(assign):
    model = build_model("performer(features=8)", seed=3)
    with torch.device("meta"):
        empty = build_model("performer(features=8)", seed=3)
    names = {n for n in model.state_dict() if n.endswith("projection")}
    assert len(names) == 6
    assert all(p.is_meta for p in empty.state_dict().values())
    if not assign:
        empty.to_empty(device="cpu")
    empty.load_state_dict(model.state_dict(), assign=assign)
    tokens = torch.randint(4, 20, (2, 5))
    assert torch.equal(empty(tokens, tokens), model(tokens, tokens))


def test_features_depend_on_seed_and_name_alone():
    def drawn(attention, layers=2, seed=0):
        buffers = dict(build_model(attention, layers, seed).named_buffers())
        return {n: b for n, b in buffers.items() if n.endswith("projection")}

    small = drawn("performer(features=8)")
    torch.manual_seed(99)
    again, large = drawn("performer(features=8)"), drawn("performer(features=8)", layers=3)
    other = drawn("performer(features=8)", seed=1)
    assert len(small) == 6
    assert len(large) == 9
    for name, rows in small.items():
        assert torch.equal(rows, again[name])
        assert torch.equal(rows, large[name])
        assert not torch.equal(rows, other[name])
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(large.values(), 2))


def test_features_are_not_learned():
    model = build_model("performer")
    assert not [n for n, _ in model.named_parameters() if "features" in n]
    softmax = build_model("softmax")
    for name, parameter in softmax.named_parameters():
        assert torch.equal(parameter, dict(model.named_parameters())[name])


# Kinds


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("softmax", None),
        (" softmax() ", None),
        ("performer", Performer()),
        ("performer(features=64, rotate=before)", Performer(64, "before")),
        ("performer(features=65, rotate=before)", Performer(65, "before")),
        ("elu", Elu()),
        ("elu(rotate='before')", Elu("before")),
    ],
)
def test_a_kind_is_written_like_an_encoding(text, kind):
    assert parse_attention(text) == kind


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            "perfomer",
            ValueError,
            "attention must be one of softmax, performer, elu, got 'perfomer'",
        ),
        ("perfomer", ValueError, "did you mean 'performer'?"),
        (
            "performer(4)",
            ValueError,
            "arguments of attention 'performer' must have the form key=value",
        ),
        ("performer(feature=4)", ValueError, "attention 'performer' has no argument 'feature'"),
        ("softmax(rotate=after)", ValueError, "'softmax' has no argument 'rotate'; it has none"),
        (
            "elu(features=4)",
            ValueError,
            "attention 'elu' has no argument 'features'; it has rotate",
        ),
        ("elu(rotate=never)", ValueError, "rotate must be 'after' or 'before', got 'never'"),
        ("performer(features=1)", ValueError, "features must be at least 2, got 1"),
        ("performer(features=8.0)", TypeError, "features must be an int, got 8.0 of type float"),
        (
            "performer(features=9)",
            ValueError,
            "features must be even if an encoding rotates pairs",
        ),
    ],
)
def test_a_wrong_kind_is_named(text, error, message):
    with pytest.raises(error, match=re.escape(message)):
        parse_attention(text)


@pytest.mark.parametrize(
    ("attention", "head_dim", "expected"),
    [
        ("softmax", 64, 64),
        ("elu", 64, 64),
        ("performer(features=32)", 64, 32),
        ("performer(features=32, rotate=before)", 64, 64),
        ("performer", 64, 268),  # 64 ln 64 = 266.2, made even
        ("performer", 1, 2),
    ],
)
def test_encodings_rotate_vectors_of_this_size(attention, head_dim, expected):
    assert rotated_dim(attention, head_dim) == expected
    shape = TransformerShape(9, 2 * head_dim, 2, 4, 1, 1, attention=attention)
    assert shape.stack_shape(causal=True).head_dim == expected
