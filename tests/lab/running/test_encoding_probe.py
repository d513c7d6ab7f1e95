"""Encodings that decode otherwise on a cache than without one are refused before training.

These fail if such an encoding is trained, if the message does not say what its members must do, if
a right encoding is refused, or if a run's random numbers depend on the probe.
"""

import encoding_cases as cases
import pytest
import torch
from tiny_tasks import config_of, translation_config

from ropewalk.encodings import REGISTRY, AttentionEncoding, Encoding
from ropewalk.encodings.interface import Attended
from ropewalk.lab.running import encoding_probe
from ropewalk.lab.running.encoding_probe import RULES, check_encodings
from ropewalk.lab.running.run_folder import prepare
from ropewalk.model import attention_probabilities


def turned(x, positions):
    """x, multiplied by a power of its position."""
    return x * 0.8 ** positions[:, None].float()


def counted(x):
    return torch.arange(x.shape[-2])


class Right(AttentionEncoding):
    """Every member at its own positions."""

    rotates_values = attends = True

    def rotate(self, q, k, placement):
        return turned(q, placement.queries), None if k is None else turned(k, placement.new_keys)

    def rotate_values(self, v, placement):
        return turned(v, placement.new_keys)

    def restore(self, output, placement):
        return turned(output, -placement.queries)

    def bias(self, placement):
        return (placement.keys - placement.queries[:, None]).expand(2, -1, -1) / 4.0

    def attend(self, q, k, v, placement, mask, need_probabilities=False):
        p = attention_probabilities(q, k, 1.0, self.bias(placement), mask)
        return Attended(p @ v, p)


class Zero(AttentionEncoding):
    """Wrong, but not with its first parameters."""

    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.zeros(()))

    def rotate(self, q, k, placement):
        return q * (1 + self.slope * counted(q)[:, None]), k


class SetLater(AttentionEncoding):
    """Wrong by a member that its class does not define."""

    def __init__(self):
        super().__init__()
        self.rotate = lambda q, k, placement: (turned(q, counted(q)), k)


class Counts(Encoding):
    def __init__(self, shape):
        super().__init__()

    def embed(self, x, positions):
        return x + counted(x)[:, None]


def but(**members):
    """Return a site that is right but for these members."""
    return type("Wrong", (Right,), members)


ALL_KEYS = but(
    rotate=lambda _, q, k, p: (turned(q, p.queries), None if k is None else turned(k, p.keys))
)
NEEDS_KEYS = but(rotate=lambda _, q, k, p: (turned(q, p.queries), turned(k, p.new_keys)))
#: Right token by token, but beams get positions that follow one another.
IN_ORDER = but(
    rotate=lambda _, q, k, p: Right.rotate(_, turned(q, p.queries[0] + counted(q)), k, p)
)
WRONG = [
    (ALL_KEYS, "rotate"),
    (IN_ORDER, "rotate"),
    (but(rotate=lambda _, q, k, p: Right.rotate(_, turned(q, counted(q)), k, p)), "rotate"),
    (but(rotate_values=lambda _, v, p: turned(v, p.keys[: v.shape[-2]])), "rotate_values"),
    (but(restore=lambda _, output, p: turned(output, -counted(output))), "restore"),
    (
        but(
            attends=False,
            bias=lambda _, p: (torch.arange(len(p.queries))[:, None] * p.keys).expand(2, -1, -1),
        ),
        "bias",
    ),
    (but(attend=lambda _, q, *rest: Right.attend(_, turned(q, 3 * counted(q)), *rest)), "attend"),
]


@pytest.fixture
def refusal(monkeypatch):
    """Return what the probe says of an encoding with this site, or None."""

    def refusal(made, task="translation", name="mine"):
        made = made if issubclass(made, Encoding) else cases.of_site(made)
        monkeypatch.setitem(REGISTRY, "mine", made)
        fields = {"encodings": (name,)}
        translates = task == "translation"
        try:
            check_encodings(
                [translation_config(**fields) if translates else config_of(task, **fields)]
            )
        except ValueError as error:
            return str(error)
        return None

    return refusal


@pytest.mark.parametrize(("site", "member"), WRONG)
def test_what_is_wrong_only_on_a_cache_is_refused_before_training(site, member, refusal):
    said = refusal(site)
    assert "encoding 'mine' decodes otherwise on a cache than without one: " in said
    assert RULES[member] in said
    assert "\n" not in said
    if site is not IN_ORDER:  # greedy decoding has no beams
        assert RULES[member] in refusal(site, "copy")
    assert refusal(site, "masked-lm") is None  # which never decodes


def test_only_the_rules_of_its_own_members_are_named(refusal):
    said = refusal(Zero)
    assert [member for member, rule in RULES.items() if rule in said] == ["rotate"]
    assert "embed must take the positions of x from its argument" in refusal(Counts)
    assert RULES["rotate"] in refusal(SetLater)


def test_a_site_between_source_and_target_must_do_without_keys(refusal):
    assert RULES["rotate"] in refusal(NEEDS_KEYS, name="mine(cross=True)")
    assert refusal(NEEDS_KEYS) is None


@pytest.mark.parametrize("name", ["mine", "mine(cross=True)"])
def test_what_is_right_or_not_cached_passes(name, refusal):
    assert refusal(Right, name=name) is None
    assert refusal(type("Uncached", (ALL_KEYS,), {"cached_keys": "none"}), name=name) is None


def test_what_needs_another_device_is_not_refused_on_this_one(refusal):
    needs_gpu = but(attends=False, bias=lambda _, p: 1 / 0)
    assert "'mine' can't be used, ZeroDivisionError: division by zero; fix it" in refusal(needs_gpu)
    check_encodings([config_of("copy", encodings=("mine",))], elsewhere=True)


@pytest.mark.parametrize(
    ("attention", "width"), [("softmax", 256), ("performer", 16), ("elu(rotate=before)", 64)]
)
def test_every_encoding_of_the_package_passes_by_far(attention, width, monkeypatch):
    monkeypatch.setattr(encoding_probe, "TOLERANCE", 5e-6)
    fields = {"width": width, "heads": 2, "kv_heads": 1, "attention": attention}
    for name in [*cases.EVERY, *map(cases.crossing, cases.ATTENDING)]:
        try:
            config = translation_config(encodings=(name,), **fields)
        except ValueError:  # it can't be built for this model
            continue
        check_encodings([config])


def test_a_run_is_refused_before_it_has_a_folder_and_its_randomness_stays(monkeypatch, tmp_path):
    monkeypatch.setitem(REGISTRY, "mine", cases.of_site(ALL_KEYS))
    with pytest.raises(ValueError, match="'mine' decodes otherwise"):
        prepare(config_of("copy", encodings=("shaw", "mine")), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    config = translation_config(encodings=("transformer_xl", "shaw(cross=True)"))
    before = torch.random.get_rng_state()
    check_encodings([config])
    assert torch.equal(torch.random.get_rng_state(), before)
