"""What a comparison's numbers were taken from and under: corpus, machine, versions."""

from __future__ import annotations

from pathlib import Path

from ropewalk.files import Facts
from ropewalk.lab.report.formats import format_count, format_duration, format_list, format_number
from ropewalk.lab.report.metrics import is_translation


def corpus_facts(results: Facts) -> list[tuple[str, str]]:
    """Give what there is to know of the corpus: sizes, vocabulary, overlap with training."""
    corpus = results["corpus"]
    if not is_translation(results):
        return [(name, text) for name, text in corpus["facts"]]
    pairs = corpus["pairs"]
    facts = [("Sentence pairs", format_list(f"{name} {n:,}" for name, n in pairs.items()))]
    for split, seen in corpus["seen_in_training"].items():
        if pairs.get(split):
            share = format_number(100 * seen["pairs"] / pairs[split])
            text = (
                f"{format_count(seen['pairs'], 'pair')} of {pairs[split]:,} ({share} %); "
                f"source sentences {seen['source']:,}, target sentences {seen['target']:,}"
            )
            facts.append((f"Of {split}, also in training", text))
    facts.append(("Vocabulary", f"{corpus['vocabulary']:,} tokens, joint byte-pair encoding"))
    longest = corpus["longest_in_training"]
    text = f"{longest['source']} tokens (source), {longest['target']} (target)"
    facts.append(("Longest in training", text))
    if corpus.get("left_out"):
        text = f"{format_count(corpus['left_out'], 'training pair')} longer than the limit"
        facts.append(("Left out", text))
    return facts + [("Note", note) for note in corpus.get("notes", ())]


def conditions(results: Facts) -> list[tuple[str, str]]:
    """Give the conditions of the numbers: command, time, machine, versions, signatures."""
    machine, seconds = results["machine"], results["duration_s"]
    sittings = results.get("sittings", 1)
    facts = [
        ("Command", results["command"]),
        ("Commit", results["commit"] or "not known"),
        ("Started", results["started"]),
        (
            "Duration",
            format_duration(seconds) + (f" in {sittings} sittings" if sittings > 1 else ""),
        ),
        ("Machine", f"{machine['processor']}, {format_count(machine['cores'], 'core')}"),
        ("Precision", machine["precision"]),
        (
            "At once",
            f"{format_count(machine['cells_at_once'], 'training')} of "
            f"{format_count(machine['threads_per_cell'], 'thread')} each",
        ),
    ]
    imported = [f"{Path(i['source']).name}, SHA-256 {i['digest']}" for i in _imports(results)]
    facts += [("Imported", text) for text in imported]
    if "device" in machine:
        facts.insert(5, ("Device", machine["device"]))
    if results.get("note"):
        facts.append(("Note", results["note"]))
    versions = {"ropewalk": results["ropewalk"], **results["versions"]}
    facts.append(("Versions", ", ".join(f"{name} {v}" for name, v in versions.items())))
    names = {"bleu": "BLEU", "chrf": "chrF"}
    return facts + [
        (f"{names.get(name, name)} signature", text)
        for name, text in results.get("signatures", {}).items()
    ]


def _imports(results: Facts) -> list[Facts]:
    imports: list[Facts] = results["config"].get("imports", [])
    return imports
