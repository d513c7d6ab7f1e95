"""Find out what a rope really does: angles read from rotated vectors, faults named.

roles, resolve   how a target is called: its arguments, size of heads, order of axes
target           one call form for all of them
measure          matrices M(p) of a target at chosen positions
structure        which dimensions rotate together, and by which angles
describe         verdicts without a specification
like, compare    the specification; verdicts against it
hypotheses       the angles that common mistakes produce
behavior         linear, batched, later, longer, gradient
precision        far positions, bfloat16
verify           all of it

load_model       a transformers model from a folder
drive, hollow    how a model is run: its arguments; projections that return random vectors
capture, applied  what reaches attention in each layer; the matrices that explain it
einsum, numbering  an einsum as a product; which list has the layers
factors, state   verdicts on query temperatures; restores what runs change
layers, live     verdicts on each layer; on the complete model
grouped          layers with the same verdicts in one line
"""

from ropewalk.tools.verify.faults import FAULTS, Fault
from ropewalk.tools.verify.live import verify_model
from ropewalk.tools.verify.load_model import load_model
from ropewalk.tools.verify.results import Check, Report, Verdict
from ropewalk.tools.verify.verify import verify

__all__ = [
    "FAULTS",
    "Check",
    "Fault",
    "Report",
    "Verdict",
    "load_model",
    "verify",
    "verify_model",
]
