"""What the reference experiment scores: windows of documents, and the losses of models on them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ropewalk.files import Facts, read_json, write_bytes
from ropewalk.lab.config import slug
from ropewalk.lab.data.textfiles import read_text
from ropewalk.lab.tokens import Tokens
from ropewalk.model import LanguageModel
from ropewalk.model.attention import self_placement

SCORED = 64  # tokens at the end of each window
MULTIPLES = (0.5, 1, 2, 4, 8)  # of the trained length
WINDOWS = 2  # of a document, if it is long enough
BATCH_TOKENS = 8192
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
    windows: list[list[int]] = []
    documents: list[int] = []
    names: list[str] = []
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


def shuffle_earlier(ids: Tensor) -> Tensor:
    """Return windows whose tokens before the scored ones and their first input are shuffled."""
    earlier, scored = ids[:, : -SCORED - 1], ids[:, -SCORED - 1 :]
    order = torch.rand(earlier.shape, generator=torch.Generator().manual_seed(0)).argsort(1)
    return torch.cat([earlier.gather(1, order), scored], 1)


def score(
    model_for: Callable[[int], LanguageModel],
    windows: Windows,
    trained: int,
    nearest: int | None = None,
    shuffled: bool = False,
) -> Facts:
    """Return a model's mean loss of each document's ends by length, and its loss by position.

    model_for: returns the model for windows of a length.
    shuffled: whether to score the trained length alone, with the earlier tokens shuffled.
    """
    count, longest = len(windows.names), windows.ids.shape[1] - 1
    ends: dict[str, list[float]] = {}
    positions = torch.zeros(longest, dtype=torch.float64)
    of_document = torch.bincount(windows.documents, minlength=count)
    for length in [trained] if shuffled else lengths(trained):
        model = model_for(length)
        ids = windows.ids[:, -length - 1 :]
        ids = shuffle_earlier(ids) if shuffled else ids
        sums = torch.zeros(count, dtype=torch.float64)
        for some in torch.arange(len(ids)).split(max(1, BATCH_TOKENS // length)):
            last = None if length == longest else SCORED
            losses = token_losses(model, ids[some], nearest, last).double()
            documents = windows.documents[some]
            sums.index_add_(0, documents, losses[:, -SCORED:].mean(1))
            if length == longest:
                positions += (losses / of_document[documents, None]).sum(0) / count
        ends[str(length)] = rounded(sums / of_document)
    return {"ends": ends} if shuffled else {"ends": ends, "positions": rounded(positions)}


def rounded(values: Tensor) -> list[float]:
    """Return the values with as many digits as are kept."""
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
        if self.documents not in ([], list(windows.names)) or not {*found["ends"]} <= {*sizes}:
            raise SystemExit(f"reference: {self.folder} is about other windows")
        self.documents = list(windows.names)
        seeds = self.models.setdefault(name, {})
        seeds[str(seed)] = found
        held = {"name": name, "trained": self.trained, "documents": self.documents, "seeds": seeds}
        text = json.dumps(held, separators=(",", ":")) + "\n"
        write_bytes(self.folder / f"{slug(name)}.json", text.encode())
        print(f"{name}, seed {seed}", flush=True)
