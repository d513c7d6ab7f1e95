"""`patch` in single models: what it changes, refuses and restores.

These fail when another object changes, when a copy or a saved model differs, when tables are less
exact than promised, or when a model that it does not understand is changed in silence.
"""

import copy
import pickle
import types
from threading import Lock

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
import transformers
from tiny_models import GEMMA, GPTJ, LATENT, TYPES, tiny_model
from transformers.models.llama import modeling_llama

import ropewalk
from ropewalk import RotaryEmbedding, RotarySpec, scaling, tools

IDS = torch.randint(3, 60, (2, 24), generator=torch.Generator().manual_seed(1))
LEFT_PADDED = torch.ones_like(IDS)
LEFT_PADDED[0, :7] = 0


def logits(model: nn.Module, ids: torch.Tensor = IDS, **more: object) -> torch.Tensor:
    with torch.no_grad():
        return model(ids, **more).logits


def largest(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())


@pytest.fixture
def llama():
    return tiny_model("llama")


# One object.


def test_no_class_no_module_and_no_other_model_changes(llama):
    other = copy.deepcopy(llama)
    attention = modeling_llama.LlamaAttention
    shared = attention, modeling_llama, type(other)
    before = [dict(vars(each)) for each in shared]
    ropewalk.patch(llama)
    assert [dict(vars(each)) for each in shared] == before
    assert type(other.model.layers[0].self_attn) is attention
    changed = llama.model.layers[0].self_attn
    assert isinstance(changed, attention)
    assert type(changed).__name__ == attention.__name__
    assert type(changed).__module__ == attention.__module__
    assert list(llama.state_dict()) == list(other.state_dict())
    assert [path for path, _ in llama.named_modules()] == [p for p, _ in other.named_modules()]


def test_the_report(llama):
    undo = ropewalk.patch(llama)
    with pytest.raises(ValueError, match="must not be patched already"):
        ropewalk.patch(llama)
    assert undo.tables == ("model.rotary_emb",)
    assert undo.taken == tuple(f"model.layers.{layer}.self_attn" for layer in range(4))
    assert undo.left == ()
    assert repr(undo).splitlines() == [
        "LlamaForCausalLM",
        "  exact tables: model.rotary_emb",
        "  fast rotation: model.layers.0-3.self_attn",
    ]
    undo()
    assert repr(undo).endswith("(undone)")
    undo()  # a second time, nothing happens
    with pytest.raises(RuntimeError, match="must not be undone yet"), undo:
        pass
    with pytest.raises(TypeError, match="a Patch cannot be pickled"):
        pickle.dumps(undo)


def test_as_a_context_manager_it_is_undone_after_an_error_too(llama):
    before = logits(llama)
    with pytest.raises(KeyError), ropewalk.patch(llama):
        raise KeyError
    assert type(llama.model.rotary_emb) is modeling_llama.LlamaRotaryEmbedding
    assert torch.equal(logits(llama), before)


def test_a_class_that_was_changed_later_is_not_restored_blindly(llama):
    undo = ropewalk.patch(llama)

    class Later(type(llama.model.rotary_emb)):
        pass

    llama.model.rotary_emb.__class__ = Later
    with pytest.raises(RuntimeError, match=r"model\.rotary_emb must not be changed after patch"):
        undo()
    assert type(llama.model.layers[0].self_attn) is not modeling_llama.LlamaAttention


# Numbers.


@pytest.mark.parametrize(
    "at",
    [torch.stack((torch.arange(24), torch.arange(24) * 3)), torch.arange(24)[None] / 2],
    ids=["each sequence has its own", "fractions, which are left to the model"],
)
def test_any_positions(llama, at):
    before = logits(llama, position_ids=at)
    with ropewalk.patch(llama):
        assert largest(logits(llama, position_ids=at), before) < 1e-5


@pytest.mark.parametrize("start", [0, 131_000, 10_000_000, 2**31 - 100])
def test_logits_do_not_depend_on_where_the_text_is(llama, start):
    """Rotary attention sees distances only; float32 angles make it see places too."""
    at = torch.arange(IDS.shape[1])[None]
    with ropewalk.patch(llama):
        near, far = (logits(llama, position_ids=at + first) for first in (0, start))
    assert largest(near, far) < 1e-6
    if start >= 10_000_000:  # the test can fail
        plain = (logits(llama, position_ids=at + first) for first in (0, start))
        assert largest(*plain) > 1e-4


def test_tables_are_exact_in_a_model_of_half_precision(llama):
    """transformers rounds cos and sin to bfloat16; here they stay float32."""
    llama.bfloat16()
    ropewalk.patch(llama)
    cos, sin = llama.model.rotary_emb(
        torch.zeros(1, 1, 64, dtype=torch.bfloat16), torch.tensor([[5000]])
    )
    wanted = RotaryEmbedding(RotarySpec(head_dim=16)).tables(torch.tensor([[5000]]))
    assert cos.dtype == torch.float32
    assert torch.equal(cos[..., :8], wanted[0])
    assert torch.equal(sin[..., 8:], wanted[1])
    assert logits(llama).dtype == torch.bfloat16


def test_a_length_dependent_rule_forgets_earlier_calls():
    """In transformers, a long call changes the frequencies of later, shorter ones (#25104)."""
    rule = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    model = tiny_model("llama", rope_parameters=rule, max_position_embeddings=32)
    short, long = (torch.arange(count)[None] % 60 for count in (40, 200))
    first = logits(model, short)
    with ropewalk.patch(model):
        assert largest(logits(model, short), first) < 1e-5
        logits(model, long)
        assert largest(logits(model, short), first) < 1e-5


def test_longrope_crosses_its_original_length_with_padding():
    """The cache is dropped for the complete batch, so the rule must change for all rows too."""
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    original = {"original_max_position_embeddings": 32}
    rule = {"rope_type": "longrope", "rope_theta": 1e4, **factors, **original}
    model = tiny_model("phi3", rope_parameters=rule, max_position_embeddings=128, **original)
    mask = LEFT_PADDED
    fields = {"attention_mask": mask, "do_sample": False, "max_new_tokens": 20}
    before = model.generate(IDS, **fields)
    with ropewalk.patch(model):
        after = model.generate(IDS, **fields, output_scores=True, return_dict_in_generate=True)
        mask = torch.cat((mask, torch.ones(2, 19, dtype=mask.dtype)), -1)
        at = (mask.cumsum(-1) - 1).clamp(min=0)
        full = logits(model, after.sequences[:, :-1], attention_mask=mask, position_ids=at)
    assert torch.equal(after.sequences, before)
    assert largest(full[:, -1], after.scores[-1]) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("llama", {}),
        ("gpt_neox", {}),
        ("gptj", {**GPTJ, "n_layer": 1}),
        ("deepseek_v3", LATENT),
        ("gemma3_text", {"layer_types": TYPES[:2], "num_hidden_layers": 2}),
    ],
)
def test_torch_compile(family, fields):
    model = tiny_model(family, **{"num_hidden_layers": 1, **fields})
    before = logits(model)
    with ropewalk.patch(model):
        torch.compiler.reset()
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        after = compiled(IDS, use_cache=False).logits
        assert largest(after.detach(), before) < 1e-5
        after.square().mean().backward()
        assert all(each.grad is not None for each in model.parameters() if each.requires_grad)


@pytest.mark.slow
def test_a_model_that_was_compiled_before():
    """In inference, where the graph is another than in training."""
    llama = tiny_model("llama", num_hidden_layers=1)
    torch.compiler.reset()
    compiled = torch.compile(llama, backend="eager", fullgraph=True)
    near = logits(llama, use_cache=False)
    far = {"position_ids": torch.arange(24)[None] + 50_000_000, "use_cache": False}
    plain = logits(compiled, **far)
    assert largest(plain, near) > 1e-4
    with ropewalk.patch(llama):
        assert largest(logits(compiled, **far), near) < 1e-6
    assert torch.equal(logits(compiled, **far), plain)


# Copies and files.


@pytest.mark.parametrize("family", ["llama", "gptj", "gemma3_text"])
def test_copies_are_patched_and_independent(family):
    model = tiny_model(family, **(GPTJ if family == "gptj" else {}))
    undo = ropewalk.patch(model)
    before = logits(model)
    copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    path = undo.taken[0]
    kind = type(model.get_submodule(path))
    undo()
    for each in copies:
        assert type(each.get_submodule(path)) is kind
        assert torch.equal(logits(each), before)


def test_a_saved_model_is_that_of_transformers(llama, tmp_path):
    plain = logits(llama)
    undo = ropewalk.patch(llama)
    llama.save_pretrained(tmp_path)
    undo()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(loaded.model.rotary_emb) is modeling_llama.LlamaRotaryEmbedding
    assert torch.equal(logits(loaded.eval()), plain)


# Another rule.

RULES = [
    scaling.Linear(4.0),
    scaling.NTKAware(4.0),
    scaling.YaRN(4.0, original_length=16),
    scaling.Llama3(8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=16),
    scaling.LongRoPE((1.0,) * 8, (2.0,) * 8, original_length=16, factor=4.0),
    scaling.DynamicNTK(2.0, original_length=2048),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_another_rule_is_saved_and_undone(rule, llama, tmp_path):
    before, config = logits(llama), llama.config
    untouched = copy.deepcopy(config.rope_parameters)
    long = torch.arange(2_100)[None] % 60 if isinstance(rule, scaling.DynamicNTK) else IDS
    plain = logits(llama, long)
    with ropewalk.patch(llama, scaling=rule):
        scaled = logits(llama, long)
        assert largest(scaled, plain) > 1e-4
        assert tools.verify_model(llama).faults == ()
        llama.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert largest(logits(loaded, long), scaled) < 1e-5
    assert llama.config is config
    assert config.rope_parameters == untouched
    assert torch.equal(logits(llama), before)


def test_layers_that_a_family_never_scales_keep_their_rope():
    model = tiny_model("gemma3_text", layer_types=TYPES, rope_parameters=GEMMA)
    rotary = model.model.rotary_emb
    with ropewalk.patch(model, scaling=scaling.Linear(2.0)):
        found = rotary.exact_tables.matches
        assert found["full_attention"].rope.scaling == scaling.Linear(2.0)
        assert found["sliding_attention"].rope.scaling is None
    assert not hasattr(rotary, "exact_tables")


def test_what_is_set_on_the_config_meanwhile_is_kept(llama):
    undo = ropewalk.patch(llama, scaling=scaling.Linear(4.0))
    llama.resize_token_embeddings(72)
    llama.config.use_cache = False
    undo()
    assert (llama.config.vocab_size, llama.config.use_cache) == (72, False)
    assert llama.config.rope_parameters["rope_type"] == "default"


@pytest.mark.parametrize(
    ("family", "fields", "rule", "message"),
    [
        ("llama", {}, "yarn", "scaling must be a rule of ropewalk.scaling"),
        ("llama", {}, scaling.DynamicNTK(2.0, original_length=16), "original_length=2048"),
        ("gptj", GPTJ, scaling.Linear(2.0), "scaling must be left out for this model"),
        ("phi3", {}, scaling.Linear(2.0), "reads back from a config of 'phi3'"),
        ("gemma3_text", {}, scaling.Linear(2.0), "no layer of this model has a rope that scales"),
        (
            "deepseek_v3",
            LATENT,
            scaling.YaRN(4.0, original_length=512, mscale=1.0, mscale_all_dim=1.0),
            "must not change the scale of scores",
        ),
    ],
)
def test_a_rule_that_does_not_suit_the_model(family, fields, rule, message):
    model = tiny_model(family, **fields)
    before = logits(model)
    with pytest.raises((TypeError, ValueError), match=message):
        ropewalk.patch(model, scaling=rule)
    assert torch.equal(logits(model), before)


# What is left.


def replace_forward(model):
    """Give the attention of a layer a forward of its own, as accelerate does."""
    layer = model.model.layers[1].self_attn
    layer.forward = types.MethodType(type(layer).forward, layer)


def test_a_module_with_a_forward_of_its_own_is_left(llama):
    replace_forward(llama)
    before = logits(llama)
    undo = ropewalk.patch(llama)
    assert [path for path, _ in undo.left] == ["model.layers.1.self_attn"]
    assert "accelerate" in undo.left[0][1]
    assert len(undo.taken) == 3
    assert largest(logits(llama), before) < 1e-5
    assert "left: model.layers.1.self_attn: its forward was replaced" in repr(undo)


class Inline(modeling_llama.LlamaAttention):
    """An attention that rotates in its own code."""

    def forward(self, hidden_states, position_embeddings=None, **more):
        cos, sin = (table[:, :, None] for table in position_embeddings)
        q = self.q_proj(hidden_states).unflatten(-1, (-1, 16))
        q = q * cos + torch.cat((-q[..., 8:], q[..., :8]), -1) * sin
        return self.o_proj(q.flatten(2)), None


class Unseen(modeling_llama.LlamaAttention):
    """An attention that rotates in its own code, with names that nobody expects."""

    def forward(self, hidden_states, position_embeddings=None, **more):
        c, s = (table[:, :, None] for table in position_embeddings)
        q = self.q_proj(hidden_states).unflatten(-1, (-1, 16))
        return self.o_proj((q * c + q.roll(8, -1) * s).flatten(2)), None


class Super(modeling_llama.LlamaAttention):
    """An attention that rotates by the method of its base class."""

    def forward(self, *args, **more):
        return super().forward(*args, **more)


class Attribute(modeling_llama.LlamaAttention):
    """An attention that calls the function as an attribute of its module."""

    def forward(self, hidden_states, position_embeddings=None, **more):
        q = self.q_proj(hidden_states).unflatten(-1, (-1, 16)).transpose(1, 2)
        q, _ = modeling_llama.apply_rotary_pos_emb(q, q, *position_embeddings)
        return self.o_proj(q.transpose(1, 2).flatten(2)), None


@pytest.mark.parametrize("kind", [Inline, Unseen, Super, Attribute])
def test_attention_that_cannot_be_followed_stays_right(kind, llama):
    """Tables keep the model's form, so that code which is not replaced reads them as before."""
    llama.model.layers[3].self_attn.__class__ = kind
    before = logits(llama)
    undo = ropewalk.patch(llama)
    assert undo.taken == tuple(f"model.layers.{layer}.self_attn" for layer in range(3))
    if kind in (Inline, Super):
        assert [path for path, _ in undo.left] == ["model.layers.3.self_attn"]
    assert largest(logits(llama), before) < 1e-5


def test_a_rotary_module_that_two_stacks_share(llama):
    """`named_modules` names it once, so that the second stack is not seen as its user."""
    other = tiny_model("llama")
    both = nn.ModuleDict({"one": llama, "two": other})
    other.model.rotary_emb = llama.model.rotary_emb
    both.config = llama.config
    before = [logits(model) for model in both.values()]
    with ropewalk.patch(both):
        for model, first in zip(both.values(), before, strict=True):
            assert largest(logits(model), first) < 1e-5


def test_another_model_that_shares_layers_stays_right(llama):
    draft = copy.deepcopy(llama)
    draft.model.layers = llama.model.layers[:2]
    before = logits(draft)
    with ropewalk.patch(llama):
        assert largest(logits(draft), before) < 1e-5


def test_a_function_that_was_replaced_before_is_heeded(llama, monkeypatch):
    """Fails if a class that an earlier patch made is used although its sources changed."""
    ropewalk.patch(llama)()
    original = modeling_llama.LlamaAttention.forward

    def doubled(self, *args, **more):
        output, weights = original(self, *args, **more)
        return 2 * output, weights

    monkeypatch.setattr(modeling_llama.LlamaAttention, "forward", doubled)
    before = logits(llama)
    with ropewalk.patch(llama):
        assert largest(logits(llama), before) < 1e-5


def test_hooks_do_not_run_while_patching(llama):
    calls = []
    llama.model.rotary_emb.register_forward_hook(lambda *_: calls.append(1))
    ropewalk.patch(llama)
    assert calls == []
    logits(llama)
    assert calls == [1]


WRONG = "rotary_emb: its tables are those of no rope in the config: off by .* at"


def reverse(frequencies):
    frequencies.copy_(frequencies.flip(0))


def convert(model):
    """Say that rows are in the other order, which a forward of its own does not follow."""
    model.config.rope_pairing = "interleaved"
    replace_forward(model)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda model: model.model.rotary_emb.inv_freq.pow_(1.4), WRONG),  # another theta
        (lambda model: model.model.rotary_emb.inv_freq.mul_(1.01), WRONG),
        (lambda model: model.model.rotary_emb.inv_freq.fill_(torch.nan), WRONG),
        (lambda model: reverse(model.model.rotary_emb.inv_freq), WRONG),
        (lambda model: setattr(model.model.rotary_emb, "attention_scaling", 1.1), WRONG),
        (lambda model: setattr(model.model.rotary_emb, "lock", Lock()), "it cannot be copied"),
        (lambda model: model.to("meta"), "meta device; patch the model after it is loaded"),
        (convert, "must be patched completely"),
    ],
)
def test_what_cannot_be_patched_is_not_hidden(spoil, message, llama):
    """A model whose frequencies were lost is reported, not repaired: nobody knows its weights."""
    spoil(llama)
    with pytest.raises(ValueError, match=message):
        ropewalk.patch(llama)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (lambda: "llama", TypeError, "model must be a torch.nn.Module, got str"),
        (lambda: nn.Linear(2, 2), ValueError, "model must have a config"),
        (lambda: tiny_model("gpt2", n_embd=64, n_head=4, n_layer=1), ValueError, "gpt2"),
        (lambda: tiny_model("bloom", n_head=4, n_layer=1), ValueError, "bloom"),
    ],
)
def test_what_has_no_rope(model, error, message):
    with pytest.raises(error, match=message):
        ropewalk.patch(model())
