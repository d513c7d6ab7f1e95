"""Rotation and attention in ropewalk's own models and in those of transformers, seen in a run.

A rotation may be replaced meanwhile.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ropewalk.checks import ArgumentNeededError
from ropewalk.encodings import AttentionEncoding, Placement
from ropewalk.encodings.rotary import RotarySite
from ropewalk.model import Attention, LanguageModel
from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.learned import LearnedRotaryEmbedding
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.tools.live_model import Part, preserved, replaced, rotating_parts
from ropewalk.tools.usage.head_usage import Rope

Role = Literal["q", "k"]

Visit = Callable[[int, Role, Tensor, Tensor], Tensor]
"""Called with a layer, "q" or "k", and vectors (B, H, S, D) before and after rotation; what it
returns takes the place of the rotated vectors."""


@dataclass(frozen=True)
class Attended:
    """What the attention of one layer computed from, and its probabilities.

    q: `(B, H, S, C)`, k: `(B, K, S, C)`, as they enter the product. Scores are q · k · scale, then
    `cap` · tanh(score / cap) if there is a cap, then plus `mask`, broadcast to `(B, H, S, S)`.
    sinks: `(H,)`, logits that take part in each softmax without a key, or None.
    """

    q: Tensor
    k: Tensor
    scale: float
    cap: float | None
    mask: Tensor | None
    sinks: Tensor | None
    weights: Tensor


See = Callable[[int, Attended], None]
"""Called with a layer and its attention."""


@contextmanager
def visiting_attention(model: nn.Module, visit: Visit) -> Iterator[None]:
    """Context in which `visit` sees the queries and keys of each `Attention` that runs."""
    attentions = [m for m in model.modules() if isinstance(m, Attention)]
    running = _Running()

    def visited(rotation: Callable[..., Any]) -> Callable[..., Any]:
        def rotate(q: Tensor, k: Tensor | None, at: Placement) -> tuple[Tensor, Tensor | None]:
            rotated_q, rotated_k = rotation(q, k, at)
            assert running.layer is not None
            rotated_q = visit(running.layer, "q", q, rotated_q)
            if k is not None and rotated_k is not None:
                rotated_k = visit(running.layer, "k", k, rotated_k)
            return rotated_q, rotated_k

        return rotate

    with ExitStack() as stack:
        for layer, attention in enumerate(attentions):
            enter = partial(running.enter, layer)
            stack.callback(attention.register_forward_pre_hook(enter).remove)
        for site in {attention.encoding for attention in attentions}:  # layers may share one
            part = Part(site, "rotate", site.rotate, makes_tables=False)
            stack.enter_context(replaced([(part, visited(site.rotate))]))
        yield


class OwnModel:
    """A `LanguageModel`: its ropes by layer, its rotation, its attention and its logits.

    Raises ValueError if it has no rope, or one without fixed frequencies.
    """

    has_logits = True

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.vocabulary = model.shape.vocabulary
        self.heads = model.shape.heads
        self.device = model.embedding.weight.device
        attentions = [m for m in model.modules() if isinstance(m, Attention)]
        if any(attention.linear is not None for attention in attentions):
            raise ValueError("model must have softmax attention, got linear attention")
        named = type(model.encoding).__name__
        ropes = [_rope_of(attention.encoding, named) for attention in attentions]
        self.ropes: tuple[Rope | None, ...] = tuple(ropes)
        self.layer_types: tuple[str | None, ...] = (None,) * len(ropes)
        self.causal = model.causal

    def visiting(self, visit: Visit) -> Any:
        """Return a context in which `visit` sees queries and keys."""
        return visiting_attention(self.model, visit)

    def attend(self, tokens: Tensor, see: See) -> None:
        """Run on tokens `(B, S)`, and show each layer's attention."""
        rotated: dict[tuple[int, Role], Tensor] = {}

        def record(layer: int, role: Role, before: Tensor, after: Tensor) -> Tensor:
            rotated[layer, role] = after
            return after

        with self.visiting(record):
            maps = self.model.attention_maps(tokens)
        for layer, weights in enumerate(maps):
            q, k = rotated[layer, "q"], rotated[layer, "k"]
            mask = None
            if self.causal:
                mask = torch.full(weights.shape[-2:], -torch.inf, device=q.device).triu(1)
            see(layer, Attended(q, k, q.shape[-1] ** -0.5, None, mask, None, weights))

    def logits(self, tokens: Tensor) -> Tensor:
        """Return scores `(B, S, V)` of the next token."""
        return self.model.logits(self.model(tokens))

    output = logits


def _rope_of(site: AttentionEncoding, named: str) -> Rope:
    if not isinstance(site, RotarySite):
        raise ValueError(
            f"model must have a rope in its attention, got the encoding {named}, whose attention "
            f"has {type(site).__name__}"
        )
    if isinstance(site.rope, LearnedRotaryEmbedding):
        raise ValueError(
            f"model must have fixed frequencies, got learned ones in {named}; pairs could not be "
            f"compared between layers and heads"
        )
    return Rope(site.rope.spec, site.length)


KEY_FIRST = ("tensor", "sin", "cos")  # GPT-J and CodeGen rotate keys, then queries


class TransformersModel:
    """A language model of transformers: its ropes, its rotation, attention and logits.

    length: of the sequences that it will read, for rules that depend on it. Raises ValueError if
    the config has no rope for text, unless `needs_rope` is False.
    """

    def __init__(self, model: Any, length: int, *, needs_rope: bool = True) -> None:
        self.model, self.length = model, length
        config = model.config.get_text_config()
        layers = [LayerSpec(None)] * int(getattr(config, "num_hidden_layers", 0) or 0)
        try:
            stacks = ModelSpec.from_config(model.config).stacks
        except ArgumentNeededError:  # no rope that is known
            if needs_rope:
                raise
        else:
            layers = list(stacks.get("text", layers))
        if needs_rope and not any(layer.rope for layer in layers):
            raise ValueError(
                f"model must have a text stack with a rope, got {type(model).__name__}"
            )
        self.ropes: tuple[Rope | None, ...] = tuple(
            None if layer.rope is None else Rope(layer.rope, length) for layer in layers
        )
        self.layer_types = tuple(layer.layer_type for layer in layers)
        self.heads = int(getattr(config, "num_attention_heads", 0) or 64)
        embeddings = model.get_input_embeddings()
        self.vocabulary = int(embeddings.num_embeddings)
        self.device: torch.device = embeddings.weight.device
        self._parameters = inspect.signature(type(model).forward).parameters

    @property
    def causal(self) -> bool:
        """Whether no output depends on later tokens, tried with another last token."""
        tokens = torch.zeros(1, self.length, dtype=torch.long, device=self.device)
        first = self.output(tokens)
        tokens[0, -1] = self.vocabulary - 1
        changed = (self.output(tokens) - first)[:, :-1].abs().max()
        return bool(changed <= 1e-4 * first.abs().max())

    @contextmanager
    def visiting(self, visit: Visit) -> Iterator[None]:
        """Context in which `visit` sees queries and keys. No other model may run meanwhile."""
        running = _Running()
        parts = [part for part in rotating_parts(self.model) if not part.makes_tables]
        with ExitStack() as stack:
            self._follow(running, stack)
            stack.enter_context(replaced([(p, self._visited(p, visit, running)) for p in parts]))
            yield

    def _follow(self, running: _Running, stack: ExitStack) -> None:
        """Let `running` know which layer runs, until the stack is closed."""
        for number, layer in self._layers():
            hook = layer.register_forward_pre_hook(partial(running.enter, number))
            stack.callback(hook.remove)
        for name, module in self.model.named_modules():
            if "indexer" in name.rpartition(".")[2].lower():  # of sparse attention
                before = module.register_forward_pre_hook(partial(running.pause, 1))
                stack.callback(before.remove)
                stack.callback(module.register_forward_hook(partial(running.pause, -1)).remove)

    def attend(self, tokens: Tensor, see: See) -> None:
        """Run on tokens `(B, S)`, and show the first attention of each layer among all tokens."""
        running, seen = _Running(), set[int]()

        def show(attended: Attended) -> None:
            layer, B, S = running.layer, *tokens.shape
            shapes = attended.q.shape[2], *attended.weights.shape[2:]
            if layer is None or running.busy or layer in seen or shapes != (S, S, S):
                return
            if len(attended.q) == B:
                seen.add(layer)
                see(layer, attended)

        with ExitStack() as stack:
            self._follow(running, stack)
            stack.enter_context(_eager(self.model))
            stack.enter_context(_showing(self.model, show, tokens))
            self._run(tokens)

    def logits(self, tokens: Tensor) -> Tensor:
        """Return scores `(B, S, V)` of the next token."""
        return torch.as_tensor(self._run(tokens).logits)

    @property
    def has_logits(self) -> bool:
        """Whether the model returns scores of tokens."""
        tokens = torch.zeros(1, self.length, dtype=torch.long, device=self.device)
        return isinstance(getattr(self._run(tokens), "logits", None), Tensor)

    def output(self, tokens: Tensor) -> Tensor:
        """Return logits, or the first output of a model without them."""
        returned = self._run(tokens)
        logits = getattr(returned, "logits", None)
        return torch.as_tensor(returned[0] if logits is None else logits)

    def _run(self, tokens: Tensor, **more: Any) -> Any:
        if "use_cache" in self._parameters:
            more["use_cache"] = False
        return self.model(input_ids=tokens, **more)

    def _layers(self) -> list[tuple[int, nn.Module]]:
        """Return the modules that may be layers of the text, with their numbers."""
        layers: list[tuple[int, nn.Module]] = []
        lists: list[str] = []
        for path, module in self.model.named_modules():
            inner = any(path.startswith(f"{outer}.") for outer in lists)  # such as experts
            if isinstance(module, nn.ModuleList) and len(module) >= len(self.ropes) and not inner:
                lists.append(path)
                layers += enumerate(module)
        return layers

    def _visited(self, part: Part, visit: Visit, running: _Running) -> Callable[..., Any]:
        """Return a function that rotates, whose results `visit` may replace."""
        function = part.function
        signature = inspect.signature(function)
        parameters = tuple(signature.parameters)

        @wraps(function)
        def visited(*args: Any, **kwargs: Any) -> Any:
            if running.busy or running.layer is None:
                return function(*args, **kwargs)
            given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
            before = [x.clone() for x in given]  # a function may rotate in place
            running.busy += 1
            try:
                returned = function(*args, **kwargs)
            finally:
                running.busy -= 1
            several = isinstance(returned, (tuple, list))
            outputs = list(returned) if several else [returned]
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            without_axis = parameters == KEY_FIRST or parameters[-1] == "freqs_cis"
            heads_at = bound.arguments.get("unsqueeze_dim", 2 if without_axis else 1)
            for place, after in enumerate(outputs):
                if not isinstance(after, Tensor) or after.ndim != 4:
                    continue
                at = next((i for i, x in enumerate(before) if x.shape == after.shape), None)
                if at is None:
                    continue
                role = running.next_role(parameters)
                swap = self._swaps(after, heads_at, running.layer)
                x, y = (z.transpose(1, 2) if swap else z for z in (before.pop(at), after))
                new = visit(running.layer, role, x, y)
                if new is not y:
                    outputs[place] = new.transpose(1, 2) if swap else new
            return tuple(outputs) if several else outputs[0]

        return visited

    def _swaps(self, x: Tensor, heads_at: Any, layer: int) -> bool:
        """Return whether x is (B, S, H, D), not (B, H, S, D)."""
        at = [axis for axis in (1, 2) if x.shape[axis] == self.length]
        if not at:
            raise ValueError(
                f"model must rotate vectors of all {self.length} tokens, got the shape "
                f"{tuple(x.shape)} in layer {layer}"
            )
        return heads_at == 2 if len(at) == 2 else at == [1]


class _Running:
    """Which layer runs, and how many tensors it has rotated."""

    def __init__(self) -> None:
        self.layer: int | None = None
        self.busy = 0  # inside a function that rotates, or an indexer
        self.rotated = 0

    def enter(self, layer: int, *_: Any) -> None:
        """Begin a layer, as a hook."""
        self.layer, self.rotated, self.busy = layer, 0, 0

    def pause(self, change: int, *_: Any) -> None:
        """Stop seeing rotations (1), or see them again (-1), as a hook."""
        self.busy += change

    def next_role(self, parameters: tuple[str, ...]) -> Role:
        """Return what the next tensor of a layer is."""
        self.rotated += 1
        roles: tuple[Role, ...] = ("k", "q") if parameters == KEY_FIRST else ("q", "k")
        if self.rotated > len(roles):
            raise ValueError(
                f"model must rotate queries and keys alone, got a third tensor in layer "
                f"{self.layer}"
            )
        return roles[self.rotated - 1]


@contextmanager
def _eager(model: nn.Module) -> Iterator[None]:
    """Context in which attention is computed by transformers' plain code.

    It is the only one that returns probabilities.
    """
    name = "_attn_implementation_internal"
    configs: dict[int, Any] = {}
    for module in model.modules():
        config = vars(module).get("config")
        subs = vars(config).values() if hasattr(config, "to_dict") else ()
        for part in (config, *subs):
            if hasattr(part, "to_dict") and name in vars(part):
                configs[id(part)] = part
    with ExitStack() as stack:
        for config in configs.values():
            stack.enter_context(mock.patch.dict(vars(config), {name: "eager"}))
        stack.enter_context(preserved(model))
        yield


@contextmanager
def _showing(model: nn.Module, show: Callable[[Attended], None], tokens: Tensor) -> Iterator[None]:
    """Context in which `show` gets each attention that transformers' plain code computes."""
    own = _OwnAttention(show, tokens)

    def shown(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def attend(
            module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
        ) -> Any:
            own.busy = True
            try:
                output, weights = original(module, query, key, value, *args, **kwargs)
            finally:
                own.busy = False
            named = inspect.signature(original).bind(module, query, key, value, *args, **kwargs)
            given = {**named.arguments, **named.arguments.get("kwargs", {})}
            sinks = given.get("s_aux", getattr(module, "sinks", None))
            scale = query.shape[-1] ** -0.5 if given.get("scaling") is None else given["scaling"]
            cap, mask = given.get("softcap"), given.get("attention_mask")
            show(Attended(query, key, float(scale), cap, mask, sinks, weights))
            return output, weights

        return attend

    sources = {sys.modules.get(cls.__module__) for m in model.modules() for cls in type(m).__mro__}
    with ExitStack() as stack:
        for source in sources:
            original = vars(source).get(EAGER) if source is not None else None
            if original is not None:
                stack.enter_context(mock.patch.object(source, EAGER, shown(original)))
        stack.enter_context(own)
        yield


EAGER = "eager_attention_forward"


class _OwnAttention(TorchFunctionMode):
    """Shows attention in classes that call torch themselves, such as GPT-J's.

    It is a product of queries and keys, divided by the root of their size, and then a softmax.
    Where only the softmax is seen, the logarithms of its weights stand for the scores.
    """

    def __init__(self, show: Callable[[Attended], None], tokens: Tensor) -> None:
        super().__init__()
        self._show, (self._rows, self._length) = show, tokens.shape
        self._product: tuple[Tensor, Tensor] | None = None
        self.busy = False  # in a function whose attention is shown already

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.busy or not isinstance(result, Tensor) or result.ndim < 3:
            return result
        if result.shape[-2:] != (self._length, self._length):
            return result
        if func in PRODUCTS:
            self._product = args[-2], args[-1].transpose(-1, -2)
        elif func in SOFTMAXES:
            weights = result.reshape(self._rows, -1, *result.shape[-2:])
            mask = torch.zeros_like(weights).masked_fill(weights == 0, -torch.inf)
            logs = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
            scale = 1.0 if self._product is None else self._product[0].shape[-1] ** -0.5
            product = self._product or (logs, torch.eye(self._length).expand_as(logs))
            q, k = (x.reshape(self._rows, -1, *x.shape[-2:]) for x in product)
            self._product = None
            self._show(Attended(q, k, scale, None, mask, None, weights))
        return result


PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.baddbmm)
SOFTMAXES = (functional.softmax, torch.softmax, Tensor.softmax)


def subject_of(
    model: nn.Module, length: int, *, needs_rope: bool = True
) -> OwnModel | TransformersModel:
    """Return what runs a model on rows of this many tokens.

    Raises TypeError if it is neither of ropewalk nor of transformers, ValueError without a rope.
    """
    if isinstance(model, LanguageModel):
        return OwnModel(model)
    if is_transformers(model):
        return TransformersModel(model, length, needs_rope=needs_rope)
    raise TypeError(
        f"model must be a LanguageModel of ropewalk or a language model of transformers, got "
        f"{type(model).__name__}"
    )


def is_transformers(model: nn.Module) -> bool:
    """Return whether a model has a config, as models of transformers do."""
    return hasattr(getattr(model, "config", None), "to_dict") and hasattr(
        model, "get_input_embeddings"
    )
