"""The corpus, machine and versions that a comparison's numbers were measured with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ropewalk.checks import joined
from ropewalk.lab.report.formats import format_count, format_duration, format_number
from ropewalk.lab.results import Part, Results, TaskCorpus


def corpus_facts(results: Results) -> list[tuple[str, str]]:
    """Return the facts of the corpus: sizes, vocabulary, overlap with training."""
    corpus = results.corpus
    if isinstance(corpus, TaskCorpus):
        return list(corpus.facts)
    pairs = corpus.pairs
    facts = [("Sentence pairs", joined(f"{name} {n:,}" for name, n in pairs.items()))]
    for split, seen in corpus.seen_in_training.items():
        if pairs.get(split):
            share = format_number(100 * seen.pairs / pairs[split])
            text = (
                f"{seen.pairs:,} of {pairs[split]:,} pairs ({share} %), "
                f"{seen.source:,} of the source sentences, "
                f"{seen.target:,} of the target sentences"
            )
            facts.append((f"{split} items also in training", text))
    facts.append(("Vocabulary", f"{corpus.vocabulary:,} tokens, joint byte-pair encoding"))
    longest = corpus.longest_in_training
    text = f"{longest.source} tokens (source), {longest.target} (target)"
    facts.append(("Longest in training", text))
    if corpus.left_out:
        text = f"{format_count(corpus.left_out, 'training pair')} longer than the limit"
        facts.append(("Left out", text))
    return facts + [("Note", note) for note in corpus.notes]


def conditions(results: Results) -> list[tuple[str, str]]:
    """Return the conditions of the numbers: command, time, machine, versions, signatures.

    If the results have parts, each part lists its cells and then its own conditions.
    """
    imported = [f"{Path(i.source).name}, SHA-256 {i.digest}" for i in results.config.imports]
    facts = []
    for number, part in enumerate(results.parts, start=1):
        facts.append((f"Part {number}", cells_text(part)))
        of_part = _of_a_run(part, [], _training_time(results, part))
        facts += [(f"Part {number}, {name[0].lower()}{name[1:]}", text) for name, text in of_part]
    if facts:
        facts += [("Imported", text) for text in imported]
    else:
        facts = _of_a_run(results, imported, _training_time(results))
    names = {"bleu": "BLEU", "chrf": "chrF"}
    return facts + [
        (f"{names.get(name, name)} signature", text) for name, text in results.signatures.items()
    ]


def cells_text(part: Part) -> str:
    """Return which cells a part has: `rotary and alibi, seeds 1, 2`."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, seeds in part.cells.items():
        groups.setdefault(tuple(seeds), []).append(name)
    return "; ".join(
        f"{joined(names)}, {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"
        for seeds, names in groups.items()
    )


def _training_time(results: Results, part: Part | None = None) -> float:
    """Return the least time in which the cells of the results, or of a part, can be trained."""
    seconds = (
        cell.train_seconds or 0.0
        for row in results.encodings
        for cell in row.cells
        if part is None or cell.seed in part.cells.get(row.name, ())
    )
    return float(sum(seconds) / (part or results).machine.cells_at_once)


def _of_a_run(
    run: Results | Part, imported: Sequence[str], training: float
) -> list[tuple[str, str]]:
    """Return the conditions of a run; `training` is how long its training must have taken."""
    machine, commit = run.machine, str(run.commit or "not known")
    if commit.endswith("+"):
        commit = f"{commit[:-1]}, with uncommitted changes"
    duration, started = format_duration(run.duration_s), run.started
    if run.sittings > 1:
        duration += (
            f", summed over {run.sittings} calls of the command: one began the run, others "
            "continued it"
        )
    if run.duration_s < training:  # the times of earlier commands may not have been recorded
        duration += ", without earlier calls, whose time was not recorded"
        started = f"before {started}, by an earlier command"
    cells = format_count(machine.cells_at_once, "training run")
    versions = {"ropewalk": run.ropewalk, **run.versions}
    return [
        ("Command", run.command),
        ("Git commit when scored", commit),
        ("Started", started),
        ("Duration", duration),
        ("Machine", f"{machine.processor}, {format_count(machine.cores, 'core')}"),
        ("Device", machine.device),
        ("Precision", machine.precision),
        ("In parallel", f"{cells} of {format_count(machine.threads_per_cell, 'thread')} each"),
        *(("Imported", text) for text in imported),
        *([("Note", run.note)] if run.note else []),
        ("Versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
