"""Every encoding by its name: what `build` and the command line read."""

from __future__ import annotations

from collections.abc import Callable

from ropewalk.encodings.absolute import Binary, Integer, Learned, Sinusoidal
from ropewalk.encodings.biases import T5, ALiBi, Fire, Kerple
from ropewalk.encodings.interface import Encoding, StackShape
from ropewalk.encodings.relative import CoPE, Deberta, Shaw, TransformerXL
from ropewalk.encodings.rotary import Rotary, XPos
from ropewalk.encodings.tupe import Tupe


def _none(shape: StackShape) -> Encoding:
    """No position encoding at all (NoPE): only the causal mask gives order.

    An encoder has no causal mask, so it sees a bag of words.
    Source: Kazemnejad et al. 2023, arXiv 2305.19466.
    """
    return Encoding()


#: A new encoding is one class and one line here; every task, plot and report then has it.
#: User-defined encodings add their own: `REGISTRY["name"] = callable(shape, **arguments)`.
REGISTRY: dict[str, Callable[..., Encoding]] = {
    "none": _none,
    "integer": Integer,
    "binary": Binary,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "xpos": XPos,
    "shaw": Shaw,
    "transformer_xl": TransformerXL,
    "deberta": Deberta,
    "cope": CoPE,
    "alibi": ALiBi,
    "t5": T5,
    "kerple": Kerple,
    "fire": Fire,
    "tupe": Tupe,
}

#: Names of the encodings of this package.
OWN = frozenset(REGISTRY)
