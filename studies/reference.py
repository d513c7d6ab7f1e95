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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import (
    FORM,
    GENERATED,
    RESULTS,
    finished_run,
    markdown_table,
    shown,
    with_marked_part,
    write_study,
)
from reference_scores import SCORED, Losses, lengths, read_windows, rounded, score
from torch import Tensor

from ropewalk.encodings.outside import import_encodings
from ropewalk.figures import Picture, loss_by_context, score_by_length
from ropewalk.figures.picture import picture_html
from ropewalk.files import Facts, read_json, readable_json, write_bytes
from ropewalk.lab.cells import cells_of
from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS, draw_examples
from ropewalk.lab.models import load_model
from ropewalk.lab.report.formats import format_count, format_number
from ropewalk.lab.results import Results, read_results
from ropewalk.lab.scoring.significance import Versus, compare_with, holm, verdict
from ropewalk.lab.tasks.generated import SEED
from ropewalk.lab.tokens import Tokens
from ropewalk.machine import commit, versions
from ropewalk.model import LanguageModel

FOLDER = RESULTS / "reference"
OVERVIEW = RESULTS / "README.md"
ENCODINGS = RESULTS.parent / "examples" / "claims_encodings.py"
LOSSES = "losses"
TESTED = (1, 8)
DESIGNED = "The [design](design.md) was committed before the training, and lists its changes."
BASE = "rotary"
WINDOWED, AT_TARGET = "rotary, nearest keys alone", "rotary, trained on the longest windows"
BASELINES = (WINDOWED, AT_TARGET)  # beside the encodings, and tested apart from them
#: Models that are also scored, at the trained length, with all tokens before the scored ones in
#: random order, by the name of that: does a model without positions know an order?
SHUFFLED = {f"{name}, earlier tokens shuffled": name for name in (BASE, "none")}
MARGIN = 0.01  # nats
DEPTHS = 3  # parts of a passkey's text
ENDS = ("x1", "x8")  # lengths of the passkey's text that the first table has


def score_all(runs: Sequence[Path], texts: Path, out: Path) -> None:
    """Score every model of finished runs that has no losses yet, and write them after each."""
    configs = {run: read_results(run).config for run in runs}
    losses = Losses.read(out / LOSSES, min(config.train_length for config in configs.values()))
    windows = None
    for run, config in configs.items():
        for cell in cells_of(config):
            name = cell.encoding if config.train_length == losses.trained else AT_TARGET
            ways: dict[str, Facts] = {name: {}}
            if name == BASE:
                ways[WINDOWED] = {"nearest": losses.trained}
            ways |= {label: {"shuffled": True} for label, of in SHUFFLED.items() if of == name}
            for label, way in ways.items():
                if not losses.lacks(label, cell.seed):
                    continue
                windows = windows or read_windows(
                    texts, Tokens.of_run(run), max(lengths(losses.trained))
                )
                model, _ = load_model(cell.folder(run) / "model.safetensors", torch.device("cpu"))
                assert isinstance(model, LanguageModel)
                found = score(partial(_same, model), windows, losses.trained, **way)
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


def _blocks(trained: int) -> list[int]:
    """Return where blocks of positions end: each is as long as all before it."""
    return [2**k for k in range(4, max(lengths(trained)).bit_length())]


def _by_position(losses: Losses, name: str) -> list[float]:
    """Return the mean loss of each block of positions in the longest windows."""
    found = torch.tensor([held["positions"] for held in losses.models[name].values()]).mean(0)
    ends = _blocks(losses.trained)
    starts = [0, *ends[:-1]]
    return rounded(torch.stack([found[a:b].mean() for a, b in zip(starts, ends, strict=True)]))


def shuffled_tests(losses: Losses) -> Facts:
    """Return, for each model that was also scored so, what shuffling the earlier tokens changes."""
    found = {}
    for label, name in SHUFFLED.items():
        if seeds := sorted({*losses.models.get(name, {})} & {*losses.models.get(label, {})}):
            ends = [_ends(losses, each, losses.trained, seeds) for each in (name, label)]
            if (test := _tests(losses, ends)[1]) is not None:
                found[name] = vars(test)
    return found


def judge(losses: Losses, beside: Mapping[str, Facts]) -> Facts:
    """Return the tests and means of all encodings; the baselines are tested apart from them.

    beside: what is kept beside the losses, by name.
    """
    encodings = [BASE, *sorted(set(losses.models) - {BASE, *BASELINES, *SHUFFLED})]
    found = compare(losses, [encodings, [BASE, *BASELINES]])
    known = [name for name in encodings if name in found["rows"]]
    found["positions"] = {name: _by_position(losses, name) for name in found["rows"]}
    more = {"context": context_tests(losses, known), "shuffled": shuffled_tests(losses)}
    return {**found, **more, **beside}


def rates(results: Results) -> Facts:
    """Return the validation loss with each learning rate of the run; None where it diverged."""
    rate = str(results.config.learning_rate)
    return {
        row.name: {
            str(trial.settings["learning_rate"]): trial.validation_loss for trial in row.trials
        }
        or {rate: row.cells[0].validation_loss}
        for row in results.encodings
    }


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
    config = results.config
    rows: dict[str, Facts] = {}
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


def keep(what: str, run: Path, out: Path, name: str | None = None) -> None:
    """Keep what a run found, beside what other runs found.

    name: what to keep it by, in place of the name of its encoding.
    """
    held = kept(what, out)
    for encoding, found in KEPT[what](read_results(run)).items():
        key = name or encoding
        held[key] = {**held.get(key, {}), **found} if isinstance(found, dict) else found
    write_bytes(out / f"{what}.json", (readable_json(held) + "\n").encode())


def kept(what: str, out: Path) -> Facts:
    """Return what runs found, by encoding."""
    path = out / f"{what}.json"
    return read_json(path) if path.exists() else {}


def table(results: Facts, kind: str) -> str:
    """Return the loss of each row from the trained length on, its tests and, if known, the rest."""
    lines, trained = [], results["trained"]
    sizes = [n for n in lengths(trained) if n >= trained]
    costs, passkey = results.get("costs", {}), results.get("passkey", {})
    for name, row in results["rows"].items():
        means = [format_number(_average(row[str(n)]), 3) for n in sizes]
        told = [_told(tests.get(name)) for tests in results["tests"].values()]
        exact = passkey.get(name, {})
        found = [f"{_average(exact[x]):.0f}" if x in exact else "–" for x in ENDS]
        time = f"× {costs[name] / costs[BASE]:.2f}" if name in costs else "–"
        beside = [" · ".join(found) if exact else "–"] * bool(passkey) + [time] * bool(costs)
        lines.append([f"`{name}`", *means, *told, *beside])
    titles = [f"loss at {n:,}" + " (trained)" * (n == trained) for n in sizes]
    titles += [f"difference at {int(n):,} (95 %)" for n in results["tests"]]
    titles += [f"passkey at ×{' · ×'.join(x.removeprefix('x') for x in ENDS)}, %"] * bool(passkey)
    return markdown_table([kind, *titles, *["time of a step"] * bool(costs)], lines)


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _told(test: Any) -> str:
    if test is None:
        return "–"
    return f"{_interval(test)}: {test['verdict']}"


def _interval(test: Mapping[str, Any]) -> str:
    difference, low, high = (
        format_number(test[key], 3, signed=True) for key in ("difference", "low", "high")
    )
    return f"{difference} ({low} to {high})"


def picture_of(results: Facts) -> Picture:
    """Return the losses against the length of the window."""
    seeds = {
        name: [list(each) for each in zip(*row.values(), strict=True)]
        for name, row in results["rows"].items()
    }
    title = f"tokens of a window; trained on {results['trained']:,}"
    places = [f"{n:,}" for n in lengths(results["trained"])]
    return score_by_length(places, seeds, title, f"loss of the last {SCORED} tokens")


def positions_of(results: Facts) -> Picture:
    """Return the losses against the position in the longest windows."""
    trained = results["trained"]
    return loss_by_context(_blocks(trained), results["positions"], original=trained)


def _table_parts(results: Facts) -> list[str]:
    """Return what is scored, and the table."""
    return [
        f"Loss in nats on the last {SCORED} tokens of windows that end at the same places "
        f"of {results['documents']} test documents; "
        f"{format_count(results['seeds'], 'seed')}. Encodings are tested against `{BASE}`, "
        f"and so are the baselines; p, in results.json, is corrected (Holm); *equal*: "
        f"within ±{MARGIN} nats.",
        table(results, "encoding"),
    ]


def excerpt(results: Facts) -> str:
    """Return the one table and the one figure, for the overview of all results."""
    figure = picture_html(f"{FOLDER.name}/loss", FORM, picture_of(results).alt)
    return "\n\n".join([*_table_parts(results), figure])


def readme(results: Facts) -> str:
    """Return the README of the results, made only from its numbers."""
    return (
        "\n\n".join(
            [
                "# Position encodings on real text, up to 8 times the trained length",
                GENERATED,
                *filter(None, [results["about"]]),
                *_table_parts(results),
                "Does the loss still fall from the trained length to the longest one? "
                + "; ".join(f"`{name}` {_told(test)}" for name, test in results["context"].items())
                + ".",
                *_shuffled_parts(results),
                *_rates_parts(results.get("rates")),
                *_passkey_parts(results.get("passkey")),
                shown("loss", picture_of(results)),
                "By position in the longest windows; a point is the mean of all positions from the "
                "point before it to its own.",
                shown("positions", positions_of(results)),
                f"The folder `{LOSSES}` has the loss of every model by document and by position.",
                f"```sh\n{results['command']}\n```",
            ]
        )
        + "\n"
    )


def _shuffled_parts(results: Facts) -> list[str]:
    """Return the words about shuffled tokens."""
    told = [f"`{name}` {_interval(test)}" for name, test in results["shuffled"].items()]
    return [
        f"Exploratory: with all tokens before the scored ones in random "
        f"order, the loss at {results['trained']} changes by {'; '.join(told)}."
    ] * bool(told)


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

    keeping = action(_keep, "what")
    keeping.add_argument("run", type=finished_run)
    keeping.add_argument("--name", help="what to keep it by, in place of the encoding's name")
    action(_kept, "what", "encoding").add_argument("rate", nargs="?")
    action(_rate, "encoding")
    action(_lacks, "name", "seeds")
    scored = action(_score)
    scored.add_argument("runs", nargs="+", type=finished_run)
    scored.add_argument("--texts", type=Path, required=True, help="folder of the manuals")
    by = "studies/runs.sh reference"
    action(_judge).add_argument("--script", default=by, help="what trained the models")
    asked = parser.parse_args()
    asked.does(asked)


def _keep(asked: argparse.Namespace) -> None:
    keep(asked.what, asked.run, asked.out, asked.name)


def _kept(asked: argparse.Namespace) -> None:
    found = kept(asked.what, asked.out).get(asked.encoding, {})
    if asked.rate in found if asked.rate else found:
        print(asked.encoding)


def _rate(asked: argparse.Namespace) -> None:
    rates = kept("rates", asked.out)
    if asked.encoding not in rates:
        raise SystemExit(
            f"reference: ENCODING must have kept learning rates, got {asked.encoding!r}; "
            "`bash studies/runs.sh reference/rates` finds them"
        )
    print(chosen(rates[asked.encoding]))


def _lacks(asked: argparse.Namespace) -> None:
    losses = Losses.read(asked.out / LOSSES)
    if any(losses.lacks(asked.name, seed) for seed in asked.seeds.split(",")):
        print(asked.seeds)


def _score(asked: argparse.Namespace) -> None:
    import_encodings(str(ENCODINGS))
    score_all(asked.runs, asked.texts, asked.out)


def _judge(asked: argparse.Namespace) -> None:
    losses = Losses.read(asked.out / LOSSES)
    if BASE not in losses.models:
        raise SystemExit(
            f"reference: --out must be a folder with losses of {BASE!r}, got {asked.out}; "
            "`bash studies/runs.sh reference` trains and scores the models"
        )
    found = {what: held for what in KEPT if (held := kept(what, asked.out))}
    before = "python studies/fetch_text.py manuals\nbash " + asked.script
    results = {"commit": commit(), "versions": versions(), "command": before}
    results["about"] = DESIGNED if (asked.out / "design.md").exists() else ""
    results |= judge(losses, found)
    pictures = {"loss": picture_of(results), "positions": positions_of(results)}
    write_study(asked.out, results, readme, pictures)
    if asked.out.resolve() == FOLDER:
        overview = with_marked_part(OVERVIEW.read_text("utf-8"), FOLDER.name, excerpt(results))
        write_bytes(OVERVIEW, overview.encode())


if __name__ == "__main__":
    main()
