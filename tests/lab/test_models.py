"""Initial weights are those that committed results were trained from, bit for bit.

These fail when a parameter gets another path, another generator or another start: each is drawn
from the seed and its path. A hash that changes makes every result with that encoding again.
"""

import hashlib

import pytest
import torch

from ropewalk.encodings import REGISTRY
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.models import build_model

# torch draws other normal numbers where it has no vector instructions of x86.
pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"),
    reason="torch draws the numbers of these hashes with AVX2 or AVX-512",
)

SEED, VOCABULARY = 7, 50
#: These have no parameters.
PLAIN = ("none", "integer", "binary", "sinusoidal", "rotary", "alibi", "rotary(values=True)")
PLAIN = (*PLAIN, "sinusoidal+rotary", "xpos(both_ways=rotary)")
ENCODER_DECODER = {
    **dict.fromkeys((*PLAIN, "rotary(cross=True)", "alibi(cross=True)"), "10f4edc9e2863234"),
    "learned": "c7b78ec4b2d1ea61",
    "shaw": "db09cb9a4d6e6378",
    "transformer_xl": "311636032bb1dd76",
    "deberta": "3d985d31834b87bc",
    "t5": "c2c409fbee00b4db",
    "kerple": "22573583152e29a8",
    "fire": "7544ebd98f7a447e",
    "tupe": "3e2c222f388c8ec7",
    "rotary(learned=head)": "1a2172bd7edff1f7",
    "rotary(learned=layer)": "7a6a6d721d98096f",
    "tupe(relative=True,reset=True)": "56b3b8ac44ac0956",
    "shaw(per_head=True)": "e1405d5560da285c",
    "deberta(buckets=8,distance=32)": "643e104e3ad1d949",
    "fire(shared=True)": "7711528b773704a9",
    "kerple(kind=power)": "6a2fea6fdeb3dafa",
    "t5+sinusoidal": "bd1cb72b92f8baab",
}
DECODER = {
    **dict.fromkeys((*PLAIN, "xpos"), "12d9d786e426af0e"),
    "learned": "5612787750cc1119",
    "shaw": "11cc8f27282be926",
    "transformer_xl": "32e57008b9d48989",
    "deberta": "613f59162cabf412",
    "cope": "a93bec8be59368a6",
    "t5": "010836079509d55c",
    "kerple": "3810f309b3036e9b",
    "fire": "5cf3afb769893258",
    "tupe": "852b3e006e65babc",
    "rotary(learned=head)": "be5c390e566b2836",
    "rotary(learned=layer)": "5040549f6a6d8f4c",
    "tupe(relative=True,reset=True)": "a7cac58db48c405b",
    "shaw(per_head=True)": "b1c0f5f334f3ed64",
    "deberta(buckets=8,distance=32)": "d096df0f002b4f3d",
    "fire(shared=True)": "83d4096b825ef474",
    "kerple(kind=power)": "e0060b84320a6f0f",
    "t5+sinusoidal": "480a8c6148c56c5d",
}
LINEAR_ATTENTION = {
    "performer": "88be10991ab5362c",
    "elu": "12d9d786e426af0e",
    "performer(features=32, rotate=before)": "d4cc54a63454e029",
}


def digest(task: str, encoding: str, **settings: object) -> str:
    """Hash names, shapes, dtypes and bytes of all that a model of this task starts with."""
    settings = {"task": task, "encodings": [encoding], "seeds": [1], **settings}
    model = build_model(make_config(settings=settings), encoding, SEED, VOCABULARY)
    hashed = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        hashed.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        hashed.update(tensor.contiguous().numpy().tobytes())
    return hashed.hexdigest()[:16]


def test_every_encoding_has_a_hash():
    assert REGISTRY.keys() <= DECODER.keys()


@pytest.mark.parametrize("encoding", ENCODER_DECODER)
def test_an_encoder_decoder_starts_as_ever(encoding):
    assert digest("translation", encoding) == ENCODER_DECODER[encoding]


@pytest.mark.parametrize("encoding", DECODER)
def test_a_decoder_starts_as_ever(encoding):
    assert digest("causal-lm", encoding) == DECODER[encoding]


@pytest.mark.parametrize("attention", LINEAR_ATTENTION)
def test_linear_attention_starts_as_ever(attention):
    assert digest("causal-lm", "rotary", attention=attention) == LINEAR_ATTENTION[attention]


def test_a_hash_tells_another_start():
    """The hash is one that can fail: another seed, size or encoding gives another."""
    assert digest("causal-lm", "rotary", layers=2) != DECODER["rotary"]
    assert DECODER["rotary"] == DECODER["none"] != DECODER["t5"]
