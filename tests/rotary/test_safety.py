"""A rope goes wherever its model goes: casts, meta, copies, transforms.

These fail when a place where modules are put changes what a rope returns, leaves something behind
in it that spoils later calls, or builds a table that is too big.
"""

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from ropewalk import RotaryEmbedding, RotarySpec, axes, rotate, scaling
from ropewalk.rotary.tables import RotaryTables

L = 32
LONGROPE = scaling.LongRoPE((1.0, 1.1, 1.5, 2.0), (1.0, 2.0, 6.0, 16.0), L, factor=8.0)
MROPE = RotarySpec(8, axes=axes.sectioned((2, 1, 1)))
NAMED = {
    "plain": RotarySpec(8),
    "partial, loud yarn": RotarySpec(12, 8, scaling=scaling.YaRN(16.0, 64), amplitude=1.5),
    "deepseek": RotarySpec(12, start=4, pairing="interleaved", write_pairing="half"),
    "m-rope": MROPE,
    "blocks": RotarySpec(8, axes=axes.axial((2, 2)), blocks=(4, 4)),
    "coordinates": RotarySpec(8, theta=100.0, axes=axes.axial((2, 2)), continuous=True),
    "longrope": RotarySpec(8, scaling=LONGROPE),
    "dynamic": RotarySpec(8, scaling=scaling.DynamicNTK(2.0, L)),
}
SPECS = [pytest.param(spec, id=name) for name, spec in NAMED.items()]


def queries_and_keys(spec: RotarySpec, count: int, dtype=torch.float32) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 4, count, spec.head_dim, dtype=dtype), torch.randn(
        2, 2, count, spec.head_dim, dtype=dtype
    )


def same(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


# Casts, copies, devices


class Layer(nn.Module):
    """A model's attention, as far as a rope sees it."""

    def __init__(self, spec: RotarySpec) -> None:
        super().__init__()
        self.projection = nn.Linear(spec.head_dim, spec.head_dim, bias=False)
        self.rope = RotaryEmbedding(spec)


def saved(layer: nn.Module) -> nn.Module:
    whole = io.BytesIO()
    torch.save(layer, whole)
    whole.seek(0)
    return torch.load(whole, weights_only=False)


def emptied(layer: Layer) -> nn.Module:
    with torch.device("meta"):
        layer = Layer(layer.rope.spec)
    return layer.to_empty(device="cpu")


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "change",
    [
        nn.Module.half,
        nn.Module.bfloat16,
        nn.Module.double,
        nn.Module.eval,
        nn.Module.share_memory,
        lambda layer: layer.to(torch.float16),
        lambda layer: layer.to("cpu", torch.bfloat16),
        lambda layer: layer.to(memory_format=torch.channels_last),
        lambda layer: layer.requires_grad_(False),
        lambda layer: layer.to("meta").to_empty(device="cpu"),
        emptied,
        copy.copy,
        copy.deepcopy,
        lambda layer: pickle.loads(pickle.dumps(layer)),
        saved,
    ],
)
def test_what_is_done_to_a_model_leaves_its_rope_alone(spec, change):
    layer, (q, k) = Layer(spec), queries_and_keys(spec, 70)
    expected = RotaryEmbedding(spec)(q, k, length=100)
    assert same(layer.rope(q, k, length=100), expected)  # rows are cached before the change
    rope = change(layer).rope
    assert same(rope(q, k, length=100), expected)
    assert same(rope(q, k, offset=3, length=100), RotaryEmbedding(spec)(q, k, offset=3, length=100))


@pytest.mark.parametrize("spec", SPECS)
def test_autocast_changes_nothing(spec):
    q, k = queries_and_keys(spec, 70)
    expected = RotaryEmbedding(spec)(q, k, length=100)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert same(RotaryEmbedding(spec)(q, k, length=100), expected)


@pytest.mark.parametrize("spec", SPECS)
def test_a_state_dict_has_nothing_of_the_rope(spec):
    layer = Layer(spec)
    layer.rope(*queries_and_keys(spec, 70), length=100)
    assert [*layer.state_dict()] == ["projection.weight"]
    layer.load_state_dict(Layer(spec).state_dict(), strict=True)
    assert not [*layer.rope.parameters(), *layer.rope.buffers()]


def test_a_decode_far_out_builds_no_big_table(monkeypatch):
    """At 10,000,000 one row; where positions are given, as many rows as there are positions."""
    formed = []
    form = RotaryTables._build_tables

    def counted(self, *arguments):
        tables = form(self, *arguments)
        formed.append(tables[0].numel())
        return tables

    monkeypatch.setattr(RotaryTables, "_build_tables", counted)
    rope, (q, k) = RotaryEmbedding(RotarySpec(8)), queries_and_keys(RotarySpec(8), 1)
    rope(q, k, offset=10_000_000)
    rope(q, k, torch.tensor([10_000_000]))
    rope(q, k, torch.tensor([[10_000_000], [7]]))
    rope.shift(k, 10_000_000)
    assert formed == [4, 4, 8, 4]
    assert rope._tables.cached_rows(None) is None
    rope(q, k, offset=100)
    assert [table.shape for table in rope._tables.cached_rows(None)] == [(128, 4)] * 2


def test_x_without_a_batch_takes_positions_with_one():
    rope, x = RotaryEmbedding(RotarySpec(8)), torch.randn(5, 8)
    assert torch.equal(rope.rotate(x, torch.arange(5)[None]), rope.rotate(x))
    heads = torch.randn(5, 2, 8)
    ours = rope.rotate(heads, torch.arange(5)[None], seq_dim=-3)
    assert torch.equal(ours, rope.rotate(heads, seq_dim=-3))


# Modes and transforms, and what they leave behind


@pytest.mark.parametrize("spec", SPECS)
def test_rows_formed_in_inference_mode_serve_training(spec):
    rope, (q, k) = RotaryEmbedding(spec), queries_and_keys(spec, 7)
    with torch.inference_mode():
        rope(q, k, length=7)
    q.requires_grad_()
    rope(q, k, length=7)[0].sum().backward()
    expected = RotaryEmbedding(spec)
    clean = q.detach().clone().requires_grad_()
    expected(clean, k, length=7)[0].sum().backward()
    assert torch.equal(q.grad, clean.grad)


@pytest.mark.parametrize("first", ["real", "fake"])
@pytest.mark.parametrize("spec", SPECS)
def test_fake_tensors_and_real_ones_do_not_meet(spec, first):
    """Memory is planned by a run on fake tensors, whose device is the real one."""
    rope, (q, k) = RotaryEmbedding(spec), queries_and_keys(spec, 7)
    expected = RotaryEmbedding(spec)(q, k, length=7)
    if first == "real":
        rope(q, k, length=7)
    with FakeTensorMode() as mode:
        rotated = rope(mode.from_tensor(q), mode.from_tensor(k), length=7)
    assert [t.shape for t in rotated] == [q.shape, k.shape]
    assert same(rope(q, k, length=7), expected)


def gradient(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    return torch.func.grad(lambda x: rope.rotate(x, length=7).pow(3).sum())(x)


def per_sample(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    return torch.vmap(lambda row: gradient(rope, row))(x)


def twice(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    return torch.func.grad(lambda x: gradient(rope, x).sum())(x)


def jacobian(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    return torch.func.jacrev(lambda x: rope.rotate(x, length=7))(x[0, 0])


def functional(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    return torch.func.functionalize(lambda x: rope.rotate(x, length=7))(x)


def traced(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    return make_fx(lambda x: rope.rotate(x, length=7), tracing_mode="symbolic")(x)(x)


def forward_mode(rope: RotaryEmbedding, x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own: it uses torch.jit.script
        return torch.func.jvp(lambda x: rope.rotate(x, length=7), (x,), (x,))[1]


TRANSFORMS = [gradient, per_sample, twice, jacobian, functional, traced, forward_mode]


@pytest.mark.parametrize("first", TRANSFORMS)
@pytest.mark.parametrize("second", TRANSFORMS)
def test_no_transform_leaves_its_tensors_behind_for_another(first, second):
    """Rows cached inside `torch.func.grad` are of that level, and dead with it."""
    spec, x = RotarySpec(8), torch.randn(2, 3, 7, 8)
    used, clean = RotaryEmbedding(spec), RotaryEmbedding(spec)
    first(used, x)
    expected = second(RotaryEmbedding(spec), x)
    torch.testing.assert_close(second(used, x), expected, rtol=0, atol=0)
    assert torch.equal(used.rotate(x), clean.rotate(x))


@pytest.mark.parametrize("spec", SPECS)
def test_transforms_are_right(spec):
    rope = RotaryEmbedding(spec)
    x = torch.randn(2, 3, 7, spec.head_dim, dtype=torch.float64)
    rotated = rope.rotate(x, length=7)
    assert torch.equal(torch.vmap(lambda row: rope.rotate(row, length=7))(x), rotated)
    # The rotation is linear: its derivative in any direction is the rotation of that direction.
    torch.testing.assert_close(forward_mode(rope, x), rotated, rtol=0, atol=1e-12)
    matrix = torch.func.jacrev(lambda row: rope.rotate(row, length=7))(x[0, 0])
    product = torch.einsum("sdte,te->sd", matrix, x[0, 0])
    torch.testing.assert_close(product, rotated[0, 0], rtol=0, atol=1e-12)
    clean = x.clone().requires_grad_()
    rope.rotate(clean, length=7).pow(3).sum().backward()
    torch.testing.assert_close(gradient(rope, x), clean.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", SPECS)
def test_vmap_runs_over_positions_too(spec):
    rope = RotaryEmbedding(spec)
    x = torch.randn(3, 2, 5, spec.head_dim)
    front = (spec.axis_count,) * (spec.axis_count > 1)
    where = torch.randint(0, 99, (*front, 3, 5))
    each = torch.vmap(lambda row, p: rope.rotate(row, p, length=99), (0, len(front)))(x, where)
    torch.testing.assert_close(each, rope.rotate(x, where, length=99), rtol=0, atol=0)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("write_pairing", ["half", "interleaved"])
def test_second_derivatives_and_those_of_the_tables(pairing, write_pairing):
    """Learned frequencies need gradients of cos and sin, of which the product is bilinear."""
    x = torch.randn(2, 2, 3, 6, dtype=torch.float64, requires_grad=True)
    cos, sin = torch.randn(2, 2, 3, 2, dtype=torch.float64).unbind()
    cos.requires_grad_(), sin.requires_grad_()

    def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return rotate(x, cos, sin, pairing=pairing, write_pairing=write_pairing, start=1)

    assert torch.autograd.gradcheck(rotated, (x, cos, sin), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(rotated, (x, cos, sin))
