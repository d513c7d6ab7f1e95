"""Context parallelism: each process has a part of every sequence and sees the keys of all.

Axes: `B` batch, `K` key/value heads, `S` the tokens of one process, `T` all tokens, `D` head_dim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ropewalk import positions
from ropewalk.checks import check_int, shown
from ropewalk.encodings import AttentionEncoding, Placement
from ropewalk.model.cache import KeyValueCache

Engine = Literal["gather", "torch"]


class ContextPart:
    """This process's part of a sequence of `length` tokens, in a group of processes.

    A model that is called with `context=part` takes the tokens of this part alone. In each
    attention layer, keys and values of all parts are gathered, so outputs and gradients equal those
    of the complete sequence. Each process then has the gradients of its own loss; `sum_gradients`
    adds those of the others.

    scheme: which tokens are in which part, see `positions.context_parallel`. With `zigzag`, causal
        attention costs each process the same.
    cu_seqlens: the bounds of documents packed in the sequence, 0, n_1, n_1 + n_2, …, length.
        Positions start again in each document, and no token sees another document.
    engine: `gather`, or `torch` for torch's own ring attention (`torch_attention`).
    group: the processes (default: all). Without a process group, the part is the complete sequence.

    Example:
        >>> import torch
        >>> from ropewalk.encodings import build
        >>> from ropewalk.model import ContextPart, LanguageModel, TransformerShape
        >>> shape = TransformerShape(100, 32, 4, 64, encoder_layers=0, decoder_layers=2)
        >>> encoding = build("rotary", shape.stack_shape(causal=True))
        >>> model = LanguageModel(shape, encoding, causal=True)
        >>> part = ContextPart(8, cu_seqlens=[0, 3, 8])  # under torchrun: one of several
        >>> tokens = torch.arange(8)[None]
        >>> with part:
        ...     hidden = model(part.cut(tokens), context=part)
        ...     hidden.sum().backward()
        >>> part.sum_gradients(model.parameters())
        >>> hidden.shape, part.positions.tolist()
        (torch.Size([1, 8, 32]), [0, 1, 2, 0, 1, 2, 3, 4])
    """

    def __init__(
        self,
        length: int,
        *,
        scheme: positions.Scheme = "zigzag",
        cu_seqlens: Tensor | Sequence[int] | None = None,
        engine: Engine = "gather",
        group: dist.ProcessGroup | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        check_int("length", length, 1)
        started = dist.is_available() and dist.is_initialized()
        self.group = group
        self.rank = dist.get_rank(group) if started else 0
        self.world = dist.get_world_size(group) if started else 1
        if engine not in get_args(Engine):
            raise ValueError(f'engine must be "gather" or "torch", got {shown(engine)}')
        self.length, self.scheme, self.engine = length, scheme, engine
        parts = [
            positions.context_parallel(length, rank, self.world, scheme)
            for rank in range(self.world)
        ]
        #: The places of this part's tokens in the sequence: `(S,)`.
        self.places = parts[self.rank].to(device)
        # All parts one after another, gathered, are put back into the order of the sequence.
        self._order = torch.cat(parts).argsort().to(device)
        everything, self._documents = torch.arange(length), None
        if cu_seqlens is not None:
            bounds = torch.as_tensor(cu_seqlens)
            everything = positions.packed(bounds)
            if len(everything) != length:
                raise ValueError(
                    f"cu_seqlens must end at length={length}, got {len(everything)}; pad the last "
                    f"document, or add one of padding"
                )
            whole = torch.bucketize(torch.arange(length), bounds[1:].cpu(), right=True)
            self._documents = whole.to(device)
        self._positions = everything.to(device)
        self._entered = ExitStack()
        if engine == "torch":
            if self.places.device.type != "cuda":
                raise ValueError(
                    f'engine must be "gather" on {self.places.device.type}, got "torch": torch\'s '
                    f"own context parallelism needs GPUs"
                )
            if scheme != "zigzag" or cu_seqlens is not None:
                raise ValueError(
                    'engine must be "gather" with packed documents or another scheme than zigzag, '
                    'got "torch"'
                )

    @property
    def positions(self) -> Tensor:
        """The positions of this part's tokens, in their documents: `(S,)`."""
        return self._positions[self.places]

    def cut(self, x: Tensor, dim: int = 1) -> Tensor:
        """Return this part of a tensor with all tokens of the sequence along `dim`."""
        if not -x.ndim <= dim < x.ndim:
            raise ValueError(f"dim must be one of x's {x.ndim} dimensions, got {shown(dim)}")
        if x.shape[dim] != self.length:
            raise ValueError(
                f"x must have length={self.length} tokens along dim {dim}, got {x.shape[dim]}"
            )
        return x.index_select(dim, self.places.to(x.device))

    def gather(self, x: Tensor, dim: int = 1) -> Tensor:
        """Return the tensor of all tokens from the parts of all processes; it is differentiable."""
        if self.world > 1:
            x = _Gather.apply(x.movedim(dim, 0), self.group, self.world)  # type: ignore[no-untyped-call]
            x = x.movedim(0, dim)
        return x.index_select(dim, self._order)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add the gradients of all processes, so that each has those of the complete sequence."""
        if self.world == 1:
            return
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:  # here, but perhaps not in the other processes
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad, group=self.group)

    def __enter__(self) -> ContextPart:
        """Enter what the engine needs around the forward and the backward pass."""
        if self.engine == "torch":
            self._entered.enter_context(self.torch_attention())
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.close()

    def torch_attention(self) -> AbstractContextManager[Any]:
        """Return torch's `context_parallel`, which makes fused attention a ring. Not run here.

        It needs several GPUs with NCCL, which no test of this package has. Source:
        `torch.distributed.tensor.experimental.context_parallel`, a prototype in torch 2.13; its
        load balancing cuts the sequence like `zigzag`.
        """
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor.experimental import context_parallel

        group = dist.group.WORLD if self.group is None else self.group
        assert group is not None
        mesh = DeviceMesh.from_group(group, "cuda")
        # It wants a tensor to cut, and takes the length of the sequence from it.
        return context_parallel(mesh, buffers=[self._positions.clone()], buffer_seq_dims=[0])

    def placement(self, encoding: AttentionEncoding) -> Placement:
        """Return the positions of this part's queries, and of the keys that they see."""
        own = self.positions
        if self.engine == "torch":
            return Placement(own)
        rotated = encoding.cached_keys == "rotated"
        return Placement(own, self._positions, own if rotated else self._positions)

    def mask(self, causal: bool) -> Tensor | None:
        """Return which keys each query of this part may see, `(S, T)`; None if all."""
        if self.engine == "torch":
            return None
        sees: Tensor | None = None
        if causal:
            sees = torch.arange(self.length, device=self.places.device) <= self.places[:, None]
        if self._documents is not None:
            same = self._documents == self._documents[self.places][:, None]
            sees = same if sees is None else sees & same
        return sees

    def keys(self) -> KeyValueCache | None:
        """Return what gathers the keys and values of one attention layer."""
        return None if self.engine == "torch" else _GatheredKeys(self)

    def check_encoding(self, encoding: AttentionEncoding, *, linear: bool, causal: bool) -> None:
        """Raise ValueError if attention with this encoding cannot be divided."""
        name = type(encoding).__name__
        if linear:
            raise ValueError("attention must be softmax with context, got linear attention")
        if encoding.cached_keys == "none":
            raise ValueError(
                f"context must be None for {name}: its method does not allow keys to be rotated "
                f"apart from their queries"
            )
        if self.engine == "torch" and (encoding.biases or encoding.attends or not causal):
            raise ValueError(
                f'engine must be "gather" for {name} or a model that looks both ways, got "torch": '
                f"torch's own context parallelism adds nothing to the scores"
            )


class _GatheredKeys(KeyValueCache):
    """A cache to which all processes append their keys; attention then sees the complete sequence.

    Like any cache, it receives keys rotated or raw, as the encoding wants.
    """

    def __init__(self, part: ContextPart) -> None:
        super().__init__()
        self.part = part

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        both = self.part.gather(torch.stack((keys, values)), dim=-2)
        return both[0], both[1]


def _collective(name: str, former: str) -> Any:
    """Return a function of torch.distributed by the name in torch 2.13, or by its former name."""
    return getattr(dist, name, None) or getattr(dist, former)


class _Gather(torch.autograd.Function):
    """All parts one after another along dimension 0; gradients are summed over processes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup | None, world: int) -> Tensor:
        ctx.group = group
        whole = x.new_empty(world * x.shape[0], *x.shape[1:])
        _collective("all_gather_single", "all_gather_into_tensor")(
            whole, x.contiguous(), group=group
        )
        return whole

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        whole = gradients[0].contiguous()
        world = dist.get_world_size(ctx.group)
        own = whole.new_empty(whole.shape[0] // world, *whole.shape[1:])
        _collective("reduce_scatter_single", "reduce_scatter_tensor")(own, whole, group=ctx.group)
        return own, None, None
