"""Rules that stretch a rope, on the rotary models of the reference experiment.

    python studies/reference_rules.py score RUN TEXTS # losses of a run's models with each rule
    python studies/reference_rules.py judge           # tests, table and picture

Each rule has one factor and is scored without training and after a little more, as
results/reference/design.md says. `score` continues where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from common import GENERATED, RESULTS, finished_run, shown, write_study
from reference import LOSSES, compare, picture_of, table
from reference_scores import Losses, Windows, lengths, read_windows, score
from torch import Tensor

from ropewalk.figures import Picture
from ropewalk.files import Facts
from ropewalk.lab.cells import Cell
from ropewalk.lab.config import Config
from ropewalk.lab.loss import token_loss
from ropewalk.lab.models import build_model
from ropewalk.lab.results import read_results
from ropewalk.lab.tasks import open_task
from ropewalk.lab.tasks.text import CausalText
from ropewalk.lab.tensors import load_weights, read_tensors, weights_of
from ropewalk.lab.tokens import Tokens
from ropewalk.machine import commit, versions
from ropewalk.model import LanguageModel

FOLDER = RESULTS / "reference" / "rules"
FACTOR = 8
#: n is the length of a window, L that of training. DynamicNTK stretches by n / L.
RULES = {
    "none": "rotary",
    "Linear": "rotary(rule=linear, factor={f})",
    "NTKAware": "rotary(rule=ntkaware, factor={f})",
    "DynamicNTK": "rotary(rule=dynamicntk, factor=1, original_length={L}, length={n})",
    "YaRN": "rotary(rule=yarn, factor={f}, original_length={L})",
    "Llama3": "rotary(rule=llama3, factor={f}, low_freq_factor=1, high_freq_factor=4, "
    "original_length={L})",
}
MORE = 0.05  # of the tokens of training
SLOWER = 0.1  # of the peak learning rate
FURTHER = "{rule}, trained further"
#: Families of tests, each against its first row, by the name of their picture.
GROUPS = {"loss": list(RULES), "further": [FURTHER.format(rule=rule) for rule in RULES]}


def with_rule(
    config: Config, vocabulary: int, seed: int, weights: dict[str, Tensor], rule: str, length: int
) -> LanguageModel:
    """Return a model whose rope is stretched by a rule for windows of a length."""
    encoding = RULES[rule].format(
        f=FACTOR, L=config.train_length, n=max(length, config.train_length)
    )
    model = build_model(config, encoding, seed, vocabulary)
    assert isinstance(model, LanguageModel)
    load_weights(model, weights)  # a rope has no parameters, so the weights fit every rule
    return model.eval()


def train_further(
    model: LanguageModel, text: Tensor, config: Config, seed: int, steps: int
) -> None:
    """Train on random windows of the longest length, at a constant learning rate."""
    length = FACTOR * config.train_length
    rows = max(1, config.batch_tokens // length)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=SLOWER * config.learning_rate, betas=(0.9, 0.98), eps=1e-9
    )
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(steps):
        starts = torch.randint(len(text) - length, (rows,), generator=generator)
        ids = text[starts[:, None] + torch.arange(length + 1)]
        loss = token_loss(model(ids[:, :-1]), model.embedding.weight, ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
    model.eval()


def score_rules(run: Path, texts: Path, out: Path) -> Losses:
    """Score every seed with every rule, without and with more training, and keep the losses."""
    config = read_results(run).config
    task = open_task(config, run)
    assert isinstance(task, CausalText)
    losses = Losses.read(out / LOSSES, config.train_length)
    windows = read_windows(texts, Tokens.of_run(run), max(lengths(config.train_length)))
    cells = [Cell("rotary", seed) for seed in config.seeds]
    for cell in cells:
        weights = read_tensors(cell.folder(run) / "model.safetensors")[0]
        for rule in RULES:
            model_for = partial(with_rule, config, task.vocabulary, cell.seed, weights, rule)
            if losses.lacks(rule, cell.seed):
                losses.add(rule, cell.seed, windows, score(model_for, windows, config.train_length))
            if losses.lacks(FURTHER.format(rule=rule), cell.seed):
                found = _score_further(task, windows, cell.seed, weights, rule)
                losses.add(FURTHER.format(rule=rule), cell.seed, windows, found)
    return losses


def _score_further(
    task: CausalText, windows: Windows, seed: int, weights: dict[str, Tensor], rule: str
) -> Facts:
    config = task.config
    longest = FACTOR * config.train_length
    model = with_rule(config, task.vocabulary, seed, weights, rule, longest)
    seen = config.epochs * len(task.data["train"])
    train_further(model, task.data["train"], config, seed, round(MORE * seen / config.batch_tokens))
    trained = {name: tensor.detach() for name, tensor in weights_of(model).items()}
    model_for = partial(with_rule, config, task.vocabulary, seed, trained, rule)
    return score(model_for, windows, config.train_length)


def _part(results: Facts, group: Sequence[str]) -> Facts:
    """Return the results of some rows."""
    return {**results, "rows": {name: results["rows"][name] for name in group}}


def pictures_of(results: Facts) -> dict[str, Picture]:
    """Return a picture for the rules alone, and for further training."""
    return {stem: picture_of(_part(results, group)) for stem, group in GROUPS.items()}


def readme(results: Facts) -> str:
    """Return the README of the results, made only from its numbers."""
    longest = FACTOR * results["trained"]
    return (
        "\n\n".join(
            [
                "# Rules that stretch a rope by 8, on real text",
                GENERATED,
                f"The `rotary` models of the [reference experiment](../README.md), trained on "
                f"{results['trained']} tokens, with each rule at the factor {FACTOR} (DynamicNTK: "
                f"the length of the window divided by {results['trained']}): without training, and "
                f"after {100 * MORE:.0f} % more training on windows of {longest:,} tokens at a "
                "tenth of the peak learning rate. Rules are tested against `none`, further "
                "trained ones against `none, trained further`; p is corrected (Holm) for the five "
                "rules.",
                *(
                    part
                    for stem, picture in pictures_of(results).items()
                    for part in (
                        table(_part(results, GROUPS[stem]), "rule"),
                        shown(stem, picture),
                    )
                ),
                f"```sh\n{results['command']}\n```",
            ]
        )
        + "\n"
    )


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    scored = actions.add_parser("score")
    scored.add_argument("run", type=finished_run, help="run of rotary models")
    scored.add_argument("texts", type=Path, help="folder of the manuals")
    for action in (scored, actions.add_parser("judge")):
        action.add_argument("--out", type=Path, default=FOLDER, help="folder of results")
    asked = parser.parse_args()
    if asked.action == "score":
        score_rules(asked.run, asked.texts, asked.out)
        return
    found = compare(Losses.read(asked.out / LOSSES), list(GROUPS.values()))
    results = {"commit": commit(), "versions": versions(), **found}
    write_study(asked.out, results, readme, pictures_of(results))


if __name__ == "__main__":
    main()
