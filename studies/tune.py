"""Choose how a run's models are averaged and decoded, on the validation split alone.

``python studies/tune.py RUN_FOLDER`` translates the validation split with every cell of a
trained run, over one small grid that is the same for every encoding, and prints which setting has
the highest mean over all encodings and seeds, so that no encoding has a setting of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ropewalk.files import Facts, write_checked_json
from ropewalk.lab.batches import EncodedSplit, read_splits
from ropewalk.lab.cells import Cell
from ropewalk.lab.checkpoint import load_weights
from ropewalk.lab.config import Config, read_run_config
from ropewalk.lab.data.corpus import load_corpus
from ropewalk.lab.decoding.beam_search import best, translate_ids
from ropewalk.lab.models import load_translator
from ropewalk.lab.results import read_tuning
from ropewalk.lab.run import cells_of
from ropewalk.lab.scoring.bleu import score
from ropewalk.lab.snapshots import mean_of, snapshots
from ropewalk.lab.tokens import Tokens
from ropewalk.machine import pick_device

AVERAGES = (1, 3, 5)
LENGTH_PENALTIES = (0.6, 1.0, 1.4)


def tune(run: Path) -> Facts:
    """Give BLEU on validation for each cell and setting, and the setting of the highest mean.

    Writes ``tuning.json`` after each cell, and takes from there what is known already.
    """
    config = read_run_config(run)
    corpus = load_corpus(config.data, source=config.source, target=config.target)
    split = read_splits(run / "splits.safetensors")["validation"]
    tokens = Tokens.of_run(run)
    sources, references = zip(*corpus.splits["validation"], strict=True)
    path = run / "tuning.json"
    held: Facts = (read_tuning(run) or {"cells": {}})["cells"]
    for cell in cells_of(config):
        if str(cell) not in held:
            held[str(cell)] = {
                name: score(texts, references, sources, lowercase=config.lowercase).bleu
                for name, texts in _translations(cell, run, split, tokens, config).items()
            }
            write_checked_json(path, {"cells": held})
    names = next(iter(held.values())).keys()
    means = {name: sum(bleu[name] for bleu in held.values()) / len(held) for name in names}
    facts = {"cells": held, "mean": means, "chosen": max(means, key=lambda name: means[name])}
    write_checked_json(path, facts)
    return facts


def _translations(
    cell: Cell, run: Path, split: EncodedSplit, tokens: Tokens, config: Config
) -> dict[str, list[str]]:
    """Translate with every setting.

    One search serves all length penalties, which only rank what it ended with.
    """
    folder, device, found = cell.folder(run), pick_device(config.device), {}
    model, _ = load_translator(snapshots(folder)[-1], device)
    for average in AVERAGES:
        load_weights(model, mean_of(snapshots(folder)[-average:])[0])
        hypotheses = translate_ids(model, split.source, beam=config.beam)
        for penalty in LENGTH_PENALTIES:
            texts = [tokens.decode(best(h, penalty).ids) for h in hypotheses]
            found[f"average={average} length_penalty={penalty}"] = texts
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "config.json").exists():
        sys.exit("usage: python studies/tune.py RUN_FOLDER, the folder of a translation run")
    result = tune(Path(sys.argv[1]))
    for setting, bleu in sorted(result["mean"].items(), key=lambda item: -item[1]):
        print(f"{bleu:6.2f}  {setting}")
