"""One trained language model of a run, with its vocabulary, for tools that read a text."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ropewalk.checks import did_you_mean, shown
from ropewalk.encodings import build
from ropewalk.encodings.rotary import RotarySite
from ropewalk.files import shown_path
from ropewalk.lab.cells import Cell, cells_of
from ropewalk.lab.config import Config
from ropewalk.lab.config_sources import read_run_config
from ropewalk.lab.models import load_model
from ropewalk.lab.tasks.text import masked
from ropewalk.lab.tokens import PAD, Tokens
from ropewalk.machine import check_fits
from ropewalk.model import LanguageModel
from ropewalk.tools.model_files import first_tokens, text_of

MODEL_FILE = "model.safetensors"


@dataclass(frozen=True)
class TextModel:
    """A model's file in its run: the encoding, the seed, the run's config and vocabulary."""

    file: Path
    encoding: str
    seed: int
    config: Config
    tokens: Tokens

    def load(self, device: torch.device) -> LanguageModel:
        """Return the model in eval mode. Raises ValueError if it does not fit into memory."""
        check_fits(
            self.file.stat().st_size,
            device,
            rule="MODEL must fit into memory",
            what=f"{shown_path(self.file)} needs",
        )
        model, _ = load_model(self.file, device)
        if not isinstance(model, LanguageModel):
            raise ValueError(
                f"MODEL must be a language model, got one for task {self.config.task} in "
                f"{shown_path(self.file)}"
            )
        if self.tokens.size > model.shape.vocabulary:
            raise ValueError(
                f"{shown_path(self.file)} was trained with {model.shape.vocabulary} tokens, but "
                f"its run's tokenizer.json has {self.tokens.size}; they belong to different runs"
            )
        return model

    def read_ids(self, text_file: Path, least: int, most: int) -> Tensor:
        """Return the first token ids of a UTF-8 text, at least `least` and at most `most`."""
        text = text_of(text_file).replace("\r\n", "\n").strip()
        ids = first_tokens(lambda part: self.tokens.encode([part])[0], text, text_file, least, most)
        return torch.tensor(ids)

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what the model reads, and its targets (-1: none) unless they are the next tokens.

        A masked language model reads rows with masked tokens, the same for each call.
        """
        if self.config.task == "causal-lm":
            return rows, None
        made = masked(rows, self.tokens.size, self.config.mask_ratio, seed=0)
        return made.tokens, made.targets.where(made.targets != PAD, -1)


def run_of(path: Path) -> Path | None:
    """Return the run folder that a path is in, or None if it is in none."""
    if not os.path.exists(path):  # Path.exists raises if a name is too long
        raise ValueError(f"MODEL must be an existing file or folder, got {shown_path(path)}")
    here = path.resolve()
    return next((p for p in (here, *here.parents) if (p / "corpus.json").is_file()), None)


def find_text_model(path: Path, encoding: str | None, seed: int | None) -> TextModel:
    """Return the model that a path names: its file, the folder of it, or a run with options.

    Raises ValueError, naming the models that there are, if the choice is not clear; and if the run
    has no text, as generated sequences have none, or reads two texts, as translation does.
    """
    run = run_of(path)
    if run is None:
        raise ValueError(f"MODEL must be in a run folder, got {shown_path(path)}")
    config = read_run_config(run)
    if config.task not in ("causal-lm", "masked-lm"):
        raise ValueError(
            f"MODEL must be trained on a text, by task causal-lm or masked-lm, got task "
            f"{config.task} in {shown_path(run)}"
        )
    files = {cell: cell.folder(run) / MODEL_FILE for cell in cells_of(config)}
    found = {cell: file for cell, file in files.items() if file.is_file()}
    if not found:
        raise ValueError(f"MODEL must have a trained model, got none in {shown_path(run)}")
    below = path.resolve()
    chosen = {
        cell: file
        for cell, file in found.items()
        if (below == file or below in file.parents)
        and (encoding is None or cell.encoding == encoding)
        and (seed is None or cell.seed == seed)
    }
    if len(chosen) != 1:
        _refuse(chosen or found, encoding, seed)
    ((cell, file),) = chosen.items()
    if not _has_rope(config, cell.encoding):
        ropes = {each.encoding for each in found if _has_rope(config, each.encoding)}
        raise ValueError(
            f"MODEL must have a rope in its attention, got the encoding {cell.encoding}; with a "
            f"rope in this run: {', '.join(sorted(ropes)) or 'none'}"
        )
    return TextModel(file, cell.encoding, cell.seed, config, Tokens.of_run(run))


def _has_rope(config: Config, encoding: str) -> bool:
    shape = config.shape(1).stack_shape(causal=config.causal)
    return isinstance(build(encoding, shape).for_layer(0), RotarySite)


def _refuse(cells: dict[Cell, Path], encoding: str | None, seed: int | None) -> None:
    """Raise ValueError that names what there is."""
    seeds: dict[str, list[str]] = {}
    for cell in cells:
        seeds.setdefault(cell.encoding, []).append(str(cell.seed))
    there = "; ".join(f"{name} with seed {', '.join(of)}" for name, of in seeds.items())
    given = [] if encoding is None else [f"--encoding {shown(encoding)}"]
    given += [] if seed is None else [f"--seed {seed}"]
    got = " and ".join(given) or "neither"
    guess = did_you_mean(encoding, seeds) if encoding is not None else ""
    raise ValueError(
        f"--encoding and --seed must name one of the models that are there, got {got}{guess}: "
        f"{there}"
    )
