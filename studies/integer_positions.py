"""Whether integers as positions make training explode, with three kinds of norms.

`python studies/integer_positions.py runs/integer-positions` trains small causal language models
that add the position itself, a share of it, or sinusoids: with the lab's layers (pre-norm), with
those of Vaswani et al. 2017 (post-norm), and with RMSNorm in the lab's layers. It resumes an
interrupted run, and writes results/claims/integer-positions with a README made of the numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from common import GENERATED, RESULTS, markdown_table, write_study
from torch import Tensor, nn
from torch.nn import functional

from ropewalk.encodings import Placement
from ropewalk.files import Facts
from ropewalk.lab.config import Config
from ropewalk.lab.config_sources import make_config, read_value
from ropewalk.lab.report.formats import format_number
from ropewalk.lab.running.run_folder import prepare
from ropewalk.lab.tasks import Task
from ropewalk.lab.training.trainer import Record, Trainer
from ropewalk.machine import commit, versions
from ropewalk.model import LanguageModel
from ropewalk.model.cache import AttentionCache
from ropewalk.model.transformer import SelfAttentionLayer

FOLDER = RESULTS / "claims" / "integer-positions"
ENCODINGS = ("sinusoidal", "integer", "integer(length=512)", "none")
NORMS = {"pre": "pre-norm", "post": "post-norm", "rms": "pre-norm, RMSNorm"}


class PostNormLayer(SelfAttentionLayer):
    """The same layer with each norm after the sum, as in Vaswani et al. 2017."""

    def forward(
        self,
        x: Tensor,
        placement: Placement,
        mask: Tensor | None,
        need_probabilities: bool,
        causal: bool = False,
        cache: AttentionCache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the next x `(B, S, width)` and, if requested, the attention probabilities."""
        output, probabilities = self.attention(
            x,
            placement=placement,
            mask=mask,
            causal=causal,
            cache=cache,
            need_probabilities=need_probabilities,
        )
        x = self.attention_norm(self.dropout.add(x, output))
        x = self.feed_forward_norm(self.dropout.add(x, self.feed_forward(x)))
        return x, probabilities


def make_post_norm(model: LanguageModel) -> None:
    """Move the norms of a model after their parts; the parameters do not change.

    Post-norm needs no norm after the last layer. It stays, and normalizes a normalized input.
    """
    for layer in model.layers:
        layer.__class__ = PostNormLayer


class RMSNorm(nn.LayerNorm):
    """A norm that divides by the root of the mean square, and keeps LayerNorm's parameters."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x of any shape `(…, width)` with a mean square of 1, times weight, plus bias."""
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps) + self.bias


def make_rms_norm(model: LanguageModel) -> None:
    """Replace what each norm of a model computes; the parameters do not change."""
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.__class__ = RMSNorm


def train_cell(task: Task, norm: str, encoding: str, seed: int, folder: Path) -> Facts:
    """Train one model, or resume its training, and return the sizes of its gradients."""
    folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(task, encoding, seed, folder)
    assert isinstance(trainer.model, LanguageModel)
    if norm == "post":
        make_post_norm(trainer.model)
    if norm == "rms":
        make_rms_norm(trainer.model)
    record = trainer.run()
    return facts_of(record, seed)


def facts_of(record: Record, seed: int) -> Facts:
    """Return the results of a training: how it ended, gradients before clipping, loss."""
    gradients = [seen["gradient"] for seen in record.training]
    return {
        "seed": seed,
        "status": record.status,
        "steps": record.step,
        "first": gradients[0] if gradients else None,
        "median": sorted(gradients)[len(gradients) // 2] if gradients else None,
        "largest": max(gradients, default=None),
        "validation_loss": record.validation[-1]["loss"] if record.validation else None,
    }


def study(config: Config, run: Path) -> Facts:
    """Train every encoding with every kind of norm and every seed."""
    task = prepare(config, run)
    cells: dict[str, dict[str, list[Facts]]] = {}
    for norm in NORMS:
        cells[norm] = {}
        for encoding in config.encodings:
            cells[norm][encoding] = []
            for seed in config.seeds:
                folder = run / f"{norm}-{config.encodings.index(encoding)}-{seed}"
                cells[norm][encoding].append(train_cell(task, norm, encoding, seed, folder))
                print(norm, encoding, cells[norm][encoding][-1], flush=True)
    return {"commit": commit(), "versions": versions(), "config": config.facts(), "norms": cells}


def readme(results: Facts) -> str:
    """Return the README of the results folder, made only from its numbers."""
    config, rows = results["config"], []
    for norm, encodings in results["norms"].items():
        for encoding, cells in encodings.items():
            means = [
                _mean_and_seeds([cell[key] for cell in cells], digits)
                for key, digits in (("first", 2), ("largest", 2), ("validation_loss", 3))
            ]
            ended = sum(cell["status"] == "finished" for cell in cells)
            rows.append([f"{NORMS[norm]}, `{encoding}`", *means, f"{ended} of {len(cells)}"])
    parts = [
        "# Integers as positions, with three kinds of norms",
        GENERATED,
        f"Models of {config['layers']} layers, width {config['width']}, trained to predict the "
        f"next token in windows of {config['train_length']} tokens ({config['data']}), seeds "
        f"{', '.join(map(str, config['seeds']))}. Norm of the full gradient before clipping, at "
        "the first step and the largest; final validation loss; means of seeds, and below them "
        "each seed. Pre-norm "
        "normalizes what a part reads, post-norm (Vaswani et al. 2017) the sum after it. LayerNorm "
        "removes the constant that an integer adds to all channels, RMSNorm does not.",
        markdown_table(["", "first step", "largest", "validation loss", "finished"], rows),
        f"```sh\n{results['command']}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _mean_and_seeds(values: Sequence[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    seeds = " · ".join(format_number(value, digits) for value in known)
    return f"{format_number(sum(known) / len(known), digits)}<br><sub>{seeds}</sub>"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the models that are not trained yet and write the results folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder for models and checkpoints")
    parser.add_argument(
        "settings", nargs="*", metavar="FIELD=VALUE", help="settings of the run's config"
    )
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_intermixed_args(arguments)
    settings: Facts = {"task": "causal-lm", "encodings": ENCODINGS, "seeds": (1, 2, 3, 4, 5)}
    settings |= {"examples": 1000, "length_multiples": (1,)}
    for name, _, value in (each.partition("=") for each in options.settings):
        settings[name] = read_value(value)
    write_study(options.out, study(make_config(settings=settings), options.run), readme)


if __name__ == "__main__":
    main()
