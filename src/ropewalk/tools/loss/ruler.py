"""The command that measures RULER's tasks with lm-eval."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence

#: Two of RULER's 13 tasks: one is like finding a passkey, the other follows variables.
TASKS = ("niah_single_1", "ruler_vt")
FROM = "lm-eval 0.4.10 and later, from its documentation, not run"
INSTALL = "pip install 'lm_eval[hf,ruler]'"


LEAST = 512  # tokens; the questions alone take over 100, and answers up to 128


def ruler_command(path: str | os.PathLike[str], contexts: Sequence[int], dtype: str) -> str | None:
    """Return the command line for a model's folder and contexts, in tokens.

    Contexts of fewer than 512 tokens are left out; None if no other is left. The folder's
    config.json must describe the rule. Source: lm_eval/tasks/ruler/README.md and docs/interface.md
    of EleutherAI/lm-evaluation-harness.
    """
    lengths = [each for each in contexts if each >= LEAST]
    if not lengths:
        return None
    name = os.fspath(path)
    metadata = json.dumps({"max_seq_lengths": lengths}, separators=(",", ":"))
    model = f"pretrained={name},max_length={max(lengths)},dtype={dtype}"
    words = ["lm-eval", "run", "--model", "hf", "--model_args", model]
    words += ["--tasks", ",".join(TASKS), "--metadata", metadata, "--batch_size", "1"]
    return shlex.join(words)
