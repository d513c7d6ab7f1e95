"""The reference experiment: encodings on real text, up to 8 times the trained length.

`bash studies/runs.sh reference` trains its models, as results/reference/design.md says, and calls

    python studies/reference.py keep WHAT RUN        # rates, costs or passkey that a run found
    python studies/reference.py kept WHAT ENCODING [RATE]  # the encoding, if that is kept
    python studies/reference.py rate ENCODING        # the kept learning rate with the least loss
    python studies/reference.py lacks NAME SEEDS     # these seeds, unless all are scored
    python studies/reference.py score RUN... --texts TEXTS    # losses of the runs' models
    python studies/reference.py judge                # tests, table and picture of results/reference

What is found is kept in results/reference at once, so that it can go on without the runs.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import (
    GENERATED,
    RESULTS,
    Facts,
    finished_run,
    markdown_table,
    shown,
    write_study,
)
from torch import Tensor
from torch.nn.functional import cross_entropy

from ropewalk.encodings.outside import import_encodings
from ropewalk.figures import Picture, score_by_length
from ropewalk.files import read_json, readable_json, write_bytes
from ropewalk.lab.cells import cells_of
from ropewalk.lab.config import slug
from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS, draw_examples
from ropewalk.lab.data.textfiles import read_text
from ropewalk.lab.models import load_model
from ropewalk.lab.report.formats import format_count, format_number, format_p_value
from ropewalk.lab.results import Results, read_results
from ropewalk.lab.scoring.significance import Versus, compare_with, holm, verdict
from ropewalk.lab.tasks.generated import SEED
from ropewalk.lab.tokens import Tokens
from ropewalk.machine import commit, versions
from ropewalk.model import LanguageModel
from ropewalk.model.attention import self_placement

FOLDER = RESULTS / "reference"
ENCODINGS = RESULTS.parent / "examples" / "claims_encodings.py"
LOSSES = "losses"
SCORED = 64  # tokens at the end of each window
MULTIPLES = (0.5, 1, 2, 4, 8)  # of the trained length
TESTED = (1, 8)
WINDOWS = 2  # of a document, if it is long enough
BASE = "rotary"
WINDOWED, AT_TARGET = "rotary, nearest keys alone", "rotary, trained on the longest windows"
BASELINES = (WINDOWED, AT_TARGET)  # beside the encodings, and tested apart from them
MARGIN = 0.01  # nats
BATCH_TOKENS = 8192
DEPTHS = 3  # parts of a passkey's text
DIGITS = 4


@dataclass(frozen=True)
class Windows:
    """The windows that are scored: ids `(N, longest + 1)`, and the document of each.

    names: of the documents; its part before the first hyphen is the manual.
    """

    ids: Tensor
    documents: Tensor
    names: tuple[str, ...]


def lengths(trained: int) -> list[int]:
    """Return the lengths of windows that are scored."""
    return [int(multiple * trained) for multiple in MULTIPLES]


def read_windows(texts: Path, tokens: Tokens, longest: int) -> Windows:
    """Return the last windows of each test document that is long enough for one."""
    windows, documents, names = [], [], []
    for path in sorted((texts / "test").glob("*.txt")):
        (ids,) = tokens.encode([read_text(path).replace("\r\n", "\n").strip()])
        for end in range(len(ids), longest, -longest)[:WINDOWS]:
            windows.append(ids[end - longest - 1 : end])
            documents.append(len(names))
        if len(ids) > longest:
            names.append(path.stem)
    if not names:
        raise SystemExit(f"reference: TEXTS must have documents of {longest + 1} tokens: {texts}")
    return Windows(torch.tensor(windows), torch.tensor(documents), tuple(names))


@torch.no_grad()
def token_losses(
    model: LanguageModel, ids: Tensor, nearest: int | None = None, last: int | None = None
) -> Tensor:
    """Return the loss of each token of windows but the first, `(N, L)` from ids `(N, L + 1)`.

    nearest: how many keys each query sees in each layer, itself included; None: all before it.
    last: how many tokens at the end to return alone; None: all.
    """
    read, targets = ids[:, :-1], ids[:, 1:]
    if nearest is None:
        hidden = model(read)
    else:
        places = torch.arange(read.shape[1])
        away = places[:, None] - places
        hidden = model.embedding(read) * math.sqrt(model.shape.width)
        placement = self_placement(places, len(places), model.encoding.for_layer(0))
        mask = ((away >= 0) & (away < nearest))[None, None]
        for layer in model.layers:
            hidden, _ = layer(hidden, placement, mask, False)
        hidden = model.norm(hidden)
    if last is not None:
        hidden, targets = hidden[:, -last:], targets[:, -last:]
    logits = model.logits(hidden.flatten(0, 1))
    return cross_entropy(logits, targets.flatten(), reduction="none").view_as(targets)


def score(
    model_for: Callable[[int], LanguageModel],
    windows: Windows,
    trained: int,
    nearest: int | None = None,
) -> Facts:
    """Return a model's mean loss of each document's ends by length, and its loss by position.

    model_for: returns the model for windows of a length.
    """
    count, longest = len(windows.names), windows.ids.shape[1] - 1
    ends: dict[str, list[float]] = {}
    positions = torch.zeros(longest, dtype=torch.float64)
    of_document = torch.bincount(windows.documents, minlength=count)
    for length in lengths(trained):
        model = model_for(length)
        ids = windows.ids[:, -length - 1 :]
        sums = torch.zeros(count, dtype=torch.float64)
        for some in torch.arange(len(ids)).split(max(1, BATCH_TOKENS // length)):
            last = None if length == longest else SCORED
            losses = token_losses(model, ids[some], nearest, last).double()
            documents = windows.documents[some]
            sums.index_add_(0, documents, losses[:, -SCORED:].mean(1))
            if length == longest:
                positions += (losses / of_document[documents, None]).sum(0) / count
        ends[str(length)] = _rounded(sums / of_document)
    return {"ends": ends, "positions": _rounded(positions)}


def _rounded(values: Tensor) -> list[float]:
    return [round(value, DIGITS) for value in values.tolist()]


@dataclass
class Losses:
    """The losses of models by name and seed, as they are scored: a file of a folder for each name.

    models: for each name, by seed, what `score` returns.
    """

    folder: Path
    trained: int
    documents: list[str]
    models: dict[str, dict[str, Facts]]

    @classmethod
    def read(cls, folder: Path, trained: int = 0) -> Losses:
        """Return what is in a folder.

        trained: the length that models were trained on, if there are none yet.
        """
        losses = cls(folder, trained, [], {})
        for path in sorted(folder.glob("*.json")):
            held = read_json(path)
            losses.trained, losses.documents = held["trained"], held["documents"]
            losses.models[held["name"]] = held["seeds"]
        return losses

    def lacks(self, name: str, seed: int | str) -> bool:
        """Return whether a model has no losses yet."""
        return str(seed) not in self.models.get(name, {})

    def add(self, name: str, seed: int, windows: Windows, found: Facts) -> None:
        """Keep the losses of a model, and write its file."""
        sizes = [str(length) for length in lengths(self.trained)]
        if self.documents not in ([], list(windows.names)) or [*found["ends"]] != sizes:
            raise SystemExit(f"reference: {self.folder} is about other windows")
        self.documents = list(windows.names)
        seeds = self.models.setdefault(name, {})
        seeds[str(seed)] = found
        held = {"name": name, "trained": self.trained, "documents": self.documents, "seeds": seeds}
        text = json.dumps(held, separators=(",", ":")) + "\n"
        write_bytes(self.folder / f"{slug(name)}.json", text.encode())
        print(f"{name}, seed {seed}", flush=True)


def score_all(runs: Sequence[Path], texts: Path, out: Path) -> None:
    """Score every model of finished runs that has no losses yet, and write them after each."""
    configs = {run: read_results(run).config for run in runs}
    losses = Losses.read(out / LOSSES, min(config.train_length for config in configs.values()))
    windows = None
    for run, config in configs.items():
        for cell in cells_of(config):
            name = cell.encoding if config.train_length == losses.trained else AT_TARGET
            nearest = {name: None, **({WINDOWED: losses.trained} if name == BASE else {})}
            for label, keys in nearest.items():
                if not losses.lacks(label, cell.seed):
                    continue
                windows = windows or read_windows(
                    texts, Tokens.of_run(run), max(lengths(losses.trained))
                )
                model, _ = load_model(cell.folder(run) / "model.safetensors", torch.device("cpu"))
                assert isinstance(model, LanguageModel)
                found = score(partial(_same, model), windows, losses.trained, keys)
                losses.add(label, cell.seed, windows, found)


def _same(model: LanguageModel, length: int) -> LanguageModel:
    return model


def _mean(sums: Tensor) -> Tensor:
    return sums[..., 0] / sums[..., 1]


def _ends(losses: Losses, name: str, length: int, seeds: Sequence[str]) -> Tensor:
    """Return the statistics (seeds, documents, 2) of windows of a length: losses, and a count."""
    cells = [losses.models[name][seed]["ends"][str(length)] for seed in seeds]
    values = torch.tensor(cells, dtype=torch.float64)
    return torch.stack([values, torch.ones_like(values)], -1)


def _tests(losses: Losses, systems: Sequence[Tensor]) -> list[Versus | None]:
    """Test systems against the first; documents are drawn within their manual."""
    manuals = [name.partition("-")[0] for name in losses.documents]
    strata = torch.tensor([sorted(set(manuals)).index(manual) for manual in manuals])
    return compare_with(0, systems, _mean, margin=MARGIN, higher_is_better=False, strata=strata)


def compare(losses: Losses, groups: Sequence[Sequence[str]]) -> Facts:
    """Return the means of models and their tests, in each group against its first name.

    Names that lack a seed of the first name of all are left out.
    """
    seeds = sorted(losses.models[groups[0][0]])
    known = [[n for n in group if set(seeds) <= set(losses.models.get(n, {}))] for group in groups]
    tests: Facts = {}
    for length in (multiple * losses.trained for multiple in TESTED):
        tests[str(length)] = {}
        for group in known:
            found = _tests(losses, [_ends(losses, name, length, seeds) for name in group])
            tests[str(length)] |= {
                name: vars(test) for name, test in zip(group, found, strict=True) if test
            }
    return {
        "seeds": len(seeds),
        "trained": losses.trained,
        "documents": len(losses.documents),
        "rows": {
            name: {
                str(n): _ends(losses, name, n, seeds)[..., 0].mean(1).tolist()
                for n in lengths(losses.trained)
            }
            for name in dict.fromkeys(name for group in known for name in group)
        },
        "tests": tests,
    }


def context_tests(losses: Losses, names: Sequence[str]) -> Facts:
    """Return, for each encoding, the test of its losses at the longest length against the trained.

    It is better if the model still uses its context.
    """
    near, far = (multiple * losses.trained for multiple in TESTED)
    found = {}
    for name in names:
        seeds = sorted(losses.models[name])
        tests = _tests(losses, [_ends(losses, name, n, seeds) for n in (near, far)])
        if (test := tests[1]) is not None:
            found[name] = test
    return {
        name: vars(test) | {
            "p_holm": p, "verdict": verdict(test, p, MARGIN, higher_is_better=False)
        }
        for (name, test), p in zip(
            found.items(), holm([test.p for test in found.values()]), strict=True
        )
    }  # fmt: skip


def judge(losses: Losses, beside: Mapping[str, Facts]) -> Facts:
    """Return the tests and means of all encodings; the baselines are tested apart from them.

    beside: what is kept beside the losses, by name.
    """
    encodings = [BASE, *sorted(set(losses.models) - {BASE, *BASELINES})]
    found = compare(losses, [encodings, [BASE, *BASELINES]])
    known = [name for name in encodings if name in found["rows"]]
    return found | {"context": context_tests(losses, known), **beside}


def rates(results: Results) -> Facts:
    """Return the validation loss with the run's learning rate; None where it diverged."""
    rate = str(results.config.learning_rate)
    return {row.name: {rate: row.cells[0].validation_loss} for row in results.encodings}


def chosen(losses: Mapping[str, float | None]) -> str:
    """Return the learning rate with the least validation loss."""
    known = {rate: loss for rate, loss in losses.items() if loss is not None}
    return min(known, key=known.__getitem__)


def costs(results: Results) -> Facts:
    """Return the seconds of a training step of each encoding: the least of the seeds."""
    return {
        row.name: min(cell.train_seconds / cell.steps for cell in row.cells)
        for row in results.encodings
    }


def passkey_by_depth(results: Results) -> Facts:
    """Return exact match, in %, of each encoding by split and by where the key is, in thirds."""
    config, rows = results.config, {}
    for split in results.splits:
        size = results.lengths.of[split] if results.lengths else config.train_length
        drawn = draw_examples(
            "passkey", split="test", lengths=(size, size), count=config.test_examples, seed=SEED
        )
        key = SEQUENCE_TASKS["passkey"].words.index("key")
        places = torch.tensor([example.prompt.index(key) - 1 for example in drawn])  # after BOS
        depths = places * DEPTHS // (size + 1)
        for row in results.encodings:
            known = [cell.scores[split].statistics for cell in row.cells]
            if None in known:  # the encoding has no such positions
                continue
            exact = torch.tensor([columns["exact"] for columns in known if columns is not None])
            by_depth = [100 * exact[:, depths == d].double().mean() for d in range(DEPTHS)]
            rows.setdefault(row.name, {})[split] = [round(float(x), 1) for x in by_depth]
    return rows


#: What is kept of a run beside the losses, by the file that it is in.
KEPT = {"rates": rates, "costs": costs, "passkey": passkey_by_depth}


def keep(what: str, run: Path, out: Path) -> None:
    """Keep what a run found, beside what other runs found."""
    held = kept(what, out)
    for name, found in KEPT[what](read_results(run)).items():
        held[name] = {**held.get(name, {}), **found} if isinstance(found, dict) else found
    write_bytes(out / f"{what}.json", (readable_json(held) + "\n").encode())


def kept(what: str, out: Path) -> Facts:
    """Return what runs found, by encoding."""
    path = out / f"{what}.json"
    return read_json(path) if path.exists() else {}


def table(results: Facts, kind: str) -> str:
    """Return the loss of each row by length with its tests and, if known, the cost of a step."""
    lines, trained, costs = [], results["trained"], results.get("costs", {})
    for name, row in results["rows"].items():
        means = [format_number(_average(values), 3) for values in row.values()]
        told = [_told(tests.get(name)) for tests in results["tests"].values()]
        time = f"× {costs[name] / costs[BASE]:.2f}" if name in {*costs} - {*BASELINES} else "–"
        lines.append([f"`{name}`", *means, *told, *[time] * bool(costs)])
    titles = [f"loss at {n:,}" + " (trained)" * (n == trained) for n in lengths(trained)]
    tests = [f"tested at {int(n):,}" for n in results["tests"]]
    return markdown_table([kind, *titles, *tests, *["time of a step"] * bool(costs)], lines)


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _told(test: Any) -> str:
    if test is None:
        return "–"
    difference, low, high = (
        format_number(test[key], 3, signed=True) for key in ("difference", "low", "high")
    )
    return f"{difference} ({low} to {high}, p {format_p_value(test['p_holm'])}): {test['verdict']}"


def picture_of(results: Facts) -> Picture:
    """Return the losses against the length of the window."""
    seeds = {
        name: [list(each) for each in zip(*row.values(), strict=True)]
        for name, row in results["rows"].items()
    }
    title = f"tokens of a window; trained on {results['trained']:,}"
    places = [f"{n:,}" for n in lengths(results["trained"])]
    return score_by_length(places, seeds, title, f"loss of the last {SCORED} tokens")


def readme(results: Facts) -> str:
    """Return the README of the results, made only from its numbers."""
    return (
        "\n\n".join(
            [
                "# Position encodings on real text, up to 8 times the trained length",
                GENERATED,
                f"Loss in nats on the last {SCORED} tokens of windows that end at the same places "
                f"of {results['documents']} test documents; "
                f"{format_count(results['seeds'], 'seed')}. The [design](design.md) was committed "
                f"before the models were trained. Encodings are tested against `{BASE}`, and so "
                f"are the two baselines; p is corrected (Holm); *equal*: within ±{MARGIN} nats.",
                table(results, "encoding"),
                "Does the loss still fall from the trained length to the longest one? "
                + "; ".join(f"`{name}` {_told(test)}" for name, test in results["context"].items())
                + ".",
                *_rates_parts(results.get("rates")),
                *_passkey_parts(results.get("passkey")),
                shown("loss", picture_of(results)),
                f"[{LOSSES}]({LOSSES}) has the loss of every model by document and by position.",
                f"```sh\npython studies/fetch_text.py manuals\nbash studies/runs.sh reference\n"
                f"{results['command']}\n```",
            ]
        )
        + "\n"
    )


def _rates_parts(rates: Mapping[str, Mapping[str, float | None]] | None) -> list[str]:
    """Return the words about learning rates."""
    if not rates:
        return []
    told = []
    for name, losses in rates.items():
        rate = float(chosen(losses))
        tried = [float(each) for each in losses]
        end = {min(tried): ", the least tried", max(tried): ", the largest tried"}.get(rate, "")
        told.append(f"`{name}` {rate:g}{end}")
    return [f"Learning rates, chosen by the validation loss of another seed: {'; '.join(told)}."]


def _passkey_parts(passkey: Mapping[str, Facts] | None) -> list[str]:
    """Return the words and the table about the passkey."""
    if not passkey:
        return []
    splits = list(next(iter(passkey.values())))
    lines = [
        [
            f"`{name}`",
            *(" · ".join(f"{x:.0f}" for x in row.get(split, [])) or "–" for split in splits),
        ]
        for name, row in passkey.items()
    ]
    return [
        "Passkey, in models that were trained for it: exact match in %, with the key in the first, "
        "middle and last third of the text; lengths are multiples of the trained one.",
        markdown_table(["encoding", *(f"×{split.removeprefix('x')}" for split in splits)], lines),
    ]


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    actions = parser.add_subparsers(required=True)

    def action(does: Callable[[argparse.Namespace], None], *words: str) -> argparse.ArgumentParser:
        made = actions.add_parser(does.__name__.strip("_"))
        made.set_defaults(does=does)
        for word in words:
            made.add_argument(word, choices=KEPT if word == "what" else None)
        made.add_argument("--out", type=Path, default=FOLDER, help="folder of results")
        return made

    action(_keep, "what").add_argument("run", type=finished_run)
    action(_kept, "what", "encoding").add_argument("rate", nargs="?")
    action(_rate, "encoding")
    action(_lacks, "name", "seeds")
    scored = action(_score)
    scored.add_argument("runs", nargs="+", type=finished_run)
    scored.add_argument("--texts", type=Path, required=True, help="folder of the manuals")
    action(_judge)
    asked = parser.parse_args()
    asked.does(asked)


def _keep(asked: argparse.Namespace) -> None:
    keep(asked.what, asked.run, asked.out)


def _kept(asked: argparse.Namespace) -> None:
    found = kept(asked.what, asked.out).get(asked.encoding, {})
    if asked.rate in found if asked.rate else found:
        print(asked.encoding)


def _rate(asked: argparse.Namespace) -> None:
    print(chosen(kept("rates", asked.out)[asked.encoding]))


def _lacks(asked: argparse.Namespace) -> None:
    losses = Losses.read(asked.out / LOSSES)
    if any(losses.lacks(asked.name, seed) for seed in asked.seeds.split(",")):
        print(asked.seeds)


def _score(asked: argparse.Namespace) -> None:
    import_encodings(str(ENCODINGS))
    score_all(asked.runs, asked.texts, asked.out)


def _judge(asked: argparse.Namespace) -> None:
    found = {what: held for what in KEPT if (held := kept(what, asked.out))}
    results = {"commit": commit(), "versions": versions()}
    results |= judge(Losses.read(asked.out / LOSSES), found)
    write_study(asked.out, results, readme, {"loss": picture_of(results)})


if __name__ == "__main__":
    main()
