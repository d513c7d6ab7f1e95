"""Find out what a rope really does: angles read from rotated vectors, faults named.

verify             all checks of a function or module
call_form          how it is called: its arguments, size of heads, order of axes, positions
measured_rotation  its matrices at chosen positions; which dimensions rotate together, how far
rotation_verdicts  verdicts on that rotation, without and against a specification
key_verdicts       how keys rotate, compared with queries
frequency_mistakes frequencies and angles that common mistakes make
pair_mistakes      mistakes that mix pairs without rotating them
call_checks        one token, many heads and fewer of keys, rows of positions, order of axes
axis_checks        which pairs follow which axis, and each axis alone
moved_keys         functions that move rotated keys to new positions
function_checks    linear, batched, later, longer, gradient; far positions, bfloat16
load_target        loads what a user names: a function, or a transformers model from a folder

verify_model       all checks of a model
capture_attention  runs it on random vectors, and records what reaches attention in each layer
applied_rotation   the matrices that explain it
layer_checks       verdicts on each layer, and on its query temperature

verify_report      checks, faults and their causes; layers with the same verdicts in one line
"""

from ropewalk.tools.verify.faults import FAULTS, Fault
from ropewalk.tools.verify.load_target import load_model
from ropewalk.tools.verify.verify import verify
from ropewalk.tools.verify.verify_model import verify_model
from ropewalk.tools.verify.verify_report import Check, Report, Verdict

__all__ = ["FAULTS", "Check", "Fault", "Report", "Verdict", "load_model", "verify", "verify_model"]
