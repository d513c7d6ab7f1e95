"""Example translations and attention maps for a report, chosen by rule."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ropewalk.files import Facts
from ropewalk.lab.cells import Cell, read_hypotheses
from ropewalk.lab.data.batches import make_batch, read_splits
from ropewalk.lab.data.corpus import Corpus
from ropewalk.lab.models import load_translator
from ropewalk.lab.scoring.bleu import assign_bins
from ropewalk.lab.tokens import BOS, EOS, Tokens

EXAMPLES_PER_BIN = 4
MAPPED_SENTENCES = 3
MAPPED_TOKENS = 40  # most on either side: beyond, a map's cells are too small to see


def examples_of(results: Facts, run: Path, corpus: Corpus) -> Facts:
    """Choose sentences and return them with the translations of every encoding's first seed."""
    split, seed = results["splits"][0], results["config"]["seeds"][0]
    pairs = corpus.splits[split]
    bins = results["length_bins"][split]
    places = assign_bins([source for source, _ in pairs], bins)
    chosen = [
        index
        for place in range(len(bins))
        for index in [i for i, p in enumerate(places) if p == place][:EXAMPLES_PER_BIN]
    ]
    hypotheses = {
        row["slug"]: read_hypotheses(Cell.of_row(row, seed).folder(run), split)
        for row in results["encodings"]
        if "no_result" not in row["cells"][0]["scores"][split]
    }
    return {
        "split": split,
        "rule": f"the first {EXAMPLES_PER_BIN} sentences of each length quintile of “{split}”, "
        f"in the corpus's order; translations of seed {seed}",
        "sentences": [
            {
                "index": i,
                "source": pairs[i][0],
                "reference": pairs[i][1],
                "hypotheses": {name: texts[i] for name, texts in hypotheses.items()},
            }
            for i in chosen
        ],
    }


def attention_of(results: Facts, run: Path, corpus: Corpus) -> Facts:
    """Return every head's attention over a few sentences, for every encoding's first seed.

    The decoder reads the reference, so that all encodings attend to the same tokens.
    """
    split, seed = results["splits"][0], results["config"]["seeds"][0]
    encoded = read_splits(run / "splits.safetensors")[split]
    tokens = Tokens.of_run(run)
    lengths = [max(len(s), len(t)) for s, t in zip(encoded.source, encoded.target, strict=True)]
    order = sorted(
        (i for i, n in enumerate(lengths) if n < MAPPED_TOKENS), key=lambda i: lengths[i]
    )
    shares = [(k + 1) / (MAPPED_SENTENCES + 1) for k in range(MAPPED_SENTENCES)]
    chosen = list(dict.fromkeys(order[int(share * len(order))] for share in shares if order))
    encodings = {}
    for row in results["encodings"]:
        path = Cell.of_row(row, seed).folder(run) / "model.safetensors"
        if not path.exists():  # a diverged cell has no model
            continue
        model = load_translator(path, torch.device("cpu"))[0]
        sentences = []
        for i in chosen:
            batch = make_batch(encoded, [i])
            maps = model.attention_maps(batch.source, batch.target_in, batch.source_mask)
            source = tokens.pieces([*encoded.source[i], EOS])
            target = tokens.pieces([BOS, *encoded.target[i]])
            sentences.append(
                {
                    "encoder": _map_facts(source, source, maps.encoder),
                    "decoder": _map_facts(target, target, maps.decoder),
                    "cross": _map_facts(target, source, maps.cross),
                }
            )
        encodings[row["slug"]] = {"seed": seed, "sentences": sentences}
    return {
        "rule": f"among the sentences of “{split}” with fewer than {MAPPED_TOKENS} tokens, "
        f"those at the quartiles of length. The maps are of the model of seed {seed}, in all "
        f"layers and heads; the input of its decoder is the reference translation",
        "sentences": [
            {"index": i, "source": corpus.splits[split][i][0], "target": corpus.splits[split][i][1]}
            for i in chosen
        ],
        "encodings": encodings,
    }


def _map_facts(rows: list[str], columns: list[str], layers: list[Tensor]) -> Facts:
    weights = [
        [[[round(w, 3) for w in row] for row in head] for head in layer[0].tolist()]
        for layer in layers
    ]
    return {"rows": rows, "columns": columns, "weights": weights}
