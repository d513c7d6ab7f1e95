"""Rules that change a rope's frequencies, mostly to serve contexts longer than the trained length.

Each rule is a frozen class that follows one published source. Symbols in all of them: R is
rotary_dim, theta the base, f_i = theta^(-2i/R) the frequency of pair i, s the factor, L the
original length (that of training), n the length served.

A rule that depends on n takes it as an argument and has no state. The result does not depend on
earlier calls, on the chunks of a prefill, or on the other sequences of a batch.
"""

from ropewalk.rotary.scaling.linear import Linear
from ropewalk.rotary.scaling.llama3 import Llama3
from ropewalk.rotary.scaling.longrope import LongRoPE
from ropewalk.rotary.scaling.ntk import DynamicNTK, NTKAware
from ropewalk.rotary.scaling.proportional import Proportional
from ropewalk.rotary.scaling.rule import Scaling
from ropewalk.rotary.scaling.yarn import YaRN

RULES: tuple[type[Scaling], ...] = (
    Linear, NTKAware, DynamicNTK, YaRN, LongRoPE, Llama3, Proportional,
)  # fmt: skip

__all__ = [
    "RULES",
    "DynamicNTK",
    "Linear",
    "Llama3",
    "LongRoPE",
    "NTKAware",
    "Proportional",
    "Scaling",
    "YaRN",
]
