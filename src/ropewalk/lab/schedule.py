"""The learning rate of each step."""

from __future__ import annotations

from ropewalk.lab.config import Config


def learning_rate(config: Config, step: int, steps: int) -> float:
    """Return the learning rate at a step (from 1): linear warmup, then the schedule's decay.

    `linear` reaches zero after the last step; `noam` is Vaswani et al. 2017, eq. 3, times
    `config.learning_rate`.
    """
    warmup = config.warmup if config.warmup >= 1 else config.warmup * steps
    warmup = max(1.0, warmup)
    if config.schedule == "noam":
        return float(
            config.learning_rate * config.width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        )
    if step <= warmup:
        return config.learning_rate * step / warmup
    return config.learning_rate * (steps + 1 - step) / max(1.0, steps + 1 - warmup)
