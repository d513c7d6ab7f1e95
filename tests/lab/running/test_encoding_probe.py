"""Encodings that decode otherwise on a cache than without one are refused before training.

These fail if such an encoding is trained, if the message does not name the member that is wrong, if
a right encoding is refused, or if a run's random numbers depend on the probe.
"""

import encoding_cases as cases
import pytest
import torch
from tiny_tasks import config_of, translation_config

from ropewalk.encodings import REGISTRY, AttentionEncoding, Encoding
from ropewalk.encodings.interface import Attended
from ropewalk.lab.running import encoding_probe
from ropewalk.lab.running.encoding_probe import check_encodings
from ropewalk.lab.running.run_folder import prepare
from ropewalk.model import attention_probabilities


def turned(x, positions):
    """x, multiplied by a power of its position."""
    return x * 0.8 ** positions[:, None].float()


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


class AtAllKeys(Right):
    def rotate(self, q, k, placement):
        return turned(q, placement.queries), None if k is None else turned(k, placement.keys)


class CountsQueries(Right):
    def rotate(self, q, k, placement):
        return Right.rotate(self, turned(q, torch.arange(q.shape[-2])), k, placement)


class NeedsKeys(Right):
    def rotate(self, q, k, placement):
        return turned(q, placement.queries), turned(k, placement.new_keys)


class ValuesAtAllKeys(Right):
    def rotate_values(self, v, placement):
        return turned(v, placement.keys[: v.shape[-2]])


class RestoresByCount(Right):
    def restore(self, output, placement):
        return turned(output, -torch.arange(output.shape[-2]))


class BiasByCount(Right):
    attends = False

    def bias(self, placement):
        n = torch.arange(len(placement.queries))[:, None]
        return (n * placement.keys).expand(2, -1, -1)


class AttendsByCount(Right):
    def attend(self, q, k, v, placement, mask, need_probabilities=False):
        q = turned(q, 3 * torch.arange(q.shape[-2]))
        return super().attend(q, k, v, placement, mask)


class BeamsInOrder(Right):
    """Right token by token, but beams get positions that follow one another."""

    def rotate(self, q, k, placement):
        at = placement.queries[0] + torch.arange(q.shape[-2])
        return turned(q, at), None if k is None else turned(k, placement.new_keys)


class Uncached(AtAllKeys):
    cached_keys = "none"


class Zero(AttentionEncoding):
    """Wrong, but not with its first parameters."""

    def __init__(self):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.zeros(()))

    def rotate(self, q, k, placement):
        return q * (1 + self.slope * torch.arange(q.shape[-2])[:, None]), k


class Counts(Encoding):
    def __init__(self, shape):
        super().__init__()

    def embed(self, x, positions):
        return x + torch.arange(x.shape[1])[:, None]


ROTATE = "rotate must rotate q to placement.queries and k to placement.new_keys"


def small(task, **fields):
    if task == "translation":
        return translation_config(**fields)
    return config_of(task, **fields)


@pytest.fixture
def refusal(monkeypatch):
    """Return what the probe says of an encoding with this site, or None."""

    def refusal(made, task="translation", **settings):
        made = made if issubclass(made, Encoding) else cases.of_site(made)
        monkeypatch.setitem(REGISTRY, "mine", made)
        name = "mine(cross=True)" if settings.pop("cross", False) else "mine"
        try:
            check_encodings([small(task, encodings=(name,), **settings)])
        except ValueError as error:
            return str(error)
        return None

    return refusal


@pytest.mark.parametrize(
    ("site", "rule"),
    [
        (AtAllKeys, ROTATE),
        (CountsQueries, ROTATE),
        (BeamsInOrder, ROTATE),
        (Zero, ROTATE),
        (ValuesAtAllKeys, "rotate_values must rotate v to placement.new_keys"),
        (RestoresByCount, "restore must rotate the output back by placement.queries"),
        (BiasByCount, "bias must be (H, S, T), for placement.queries and placement.keys"),
        (AttendsByCount, "attend must take positions from placement"),
        (Counts, "embed must take the positions of x from its argument"),
    ],
)
def test_what_is_wrong_only_on_a_cache_is_named_before_training(site, rule, refusal):
    said = refusal(site)
    assert f"encoding 'mine' decodes otherwise on a cache than without one: {rule}" in said
    assert "\n" not in said
    if site is not BeamsInOrder:  # greedy decoding has no beams
        assert rule in refusal(site, "copy")
    assert refusal(site, "masked-lm") is None  # which never decodes


def test_a_site_between_source_and_target_must_do_without_keys(refusal):
    assert "rotate must take None for k" in refusal(NeedsKeys, cross=True)
    assert refusal(NeedsKeys) is None


@pytest.mark.parametrize("site", [Right, Uncached])
@pytest.mark.parametrize("cross", [False, True])
def test_what_is_right_or_not_cached_passes(site, cross, refusal):
    assert refusal(site, cross=cross) is None


@pytest.mark.parametrize("attention", ["softmax", "performer", "elu(rotate=before)"])
@pytest.mark.parametrize("width", [16, 256])
def test_every_encoding_of_the_package_passes_by_far(attention, width, monkeypatch):
    monkeypatch.setattr(encoding_probe, "TOLERANCE", 5e-6)
    for name in [*cases.EVERY, *map(cases.crossing, cases.ATTENDING)]:
        try:
            config = config_of(
                "translation",
                encodings=(name,),
                width=width,
                heads=2,
                kv_heads=1,
                attention=attention,
            )
        except ValueError:  # it can't be built for this model
            continue
        check_encodings([config])


def test_a_run_is_refused_before_it_has_a_folder_and_its_randomness_stays(monkeypatch, tmp_path):
    monkeypatch.setitem(REGISTRY, "mine", cases.of_site(AtAllKeys))
    wrong = config_of("copy", encodings=("shaw", "mine"))
    with pytest.raises(ValueError, match="'mine' decodes otherwise"):
        prepare(wrong, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    config = translation_config(encodings=("transformer_xl", "shaw(cross=True)"))
    before = torch.random.get_rng_state()
    check_encodings([config])
    assert torch.equal(torch.random.get_rng_state(), before)
