"""How a longer context changes a model's rope, rule by rule, and what to paste into an engine."""

from ropewalk.tools.extend.extend import extend
from ropewalk.tools.extend.extend_sizes import extend_sizes
from ropewalk.tools.extend.extension import Extension, Fragment, Numbers, Recommendation, RuleResult

__all__ = [
    "Extension",
    "Fragment",
    "Numbers",
    "Recommendation",
    "RuleResult",
    "extend",
    "extend_sizes",
]
