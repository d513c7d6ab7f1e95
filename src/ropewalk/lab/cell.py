"""One cell of a comparison, one encoding with one seed, in a process of its own.

``python -m ropewalk.lab.cell RUN_FOLDER ENCODING SEED`` trains it, or goes on where it stopped, and
translates; it tells how far it is in lines of JSON on standard output.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ropewalk.lab.batches import EncodedSplit, read_splits
from ropewalk.lab.checkpoint import read_json, read_tensors, write_bytes, write_json, write_tensors
from ropewalk.lab.config import Config
from ropewalk.lab.decode import best, translate
from ropewalk.lab.tokens import Tokens
from ropewalk.lab.train import (
    Record,
    Trainer,
    best_snapshot,
    build_model,
    check_facts,
    snapshots,
)
from ropewalk.machine import pick_device
from ropewalk.model import Transformer

Tell = Callable[[dict[str, Any]], None]


def cell_folder(run: Path, encoding: str, seed: int) -> Path:
    """Give the folder of a cell in its run folder."""
    return run / "cells" / slug(encoding) / f"seed-{seed}"


def slug(encoding: str) -> str:
    """Write an encoding's name as a folder can be named: ``rotary(theta=1e6)`` rotary-theta-1e6."""
    return re.sub(r"[^A-Za-z0-9.+]+", "-", encoding).strip("-")


def run_cell(run: Path, encoding: str, seed: int, tell: Tell) -> None:
    """Train and translate one cell of a prepared run, skipping what is there already."""
    config = Config.model_validate(read_json(run / "config.json"))
    splits = read_splits(run / "splits.safetensors")
    tokens = Tokens.load(run / "tokenizer.json")
    folder = cell_folder(run, encoding, seed)
    record = train(config, encoding, seed, splits, tokens.size, folder, tell)
    wanted = config.splits or tuple(s for s in splits if s not in ("train", "validation"))
    if record.status == "diverged":
        for name in wanted:
            _write_hypotheses(folder, name, [""] * len(splits[name]), 0.0, config)
        return
    model: Transformer | None = None
    for name in wanted:
        if is_translated(folder, name, config):
            continue
        if model is None:
            model = load_model(finish(config, record, folder), pick_device(config.device))[0]
        tell({"phase": f"translating {name}"})
        began = time.perf_counter()
        found = translate(model, splits[name].source, beam=config.beam)
        texts = [tokens.decode(best(h, config.length_penalty).ids) for h in found]
        _write_hypotheses(folder, name, texts, time.perf_counter() - began, config)


def train(
    config: Config,
    encoding: str,
    seed: int,
    splits: dict[str, EncodedSplit],
    vocabulary: int,
    folder: Path,
    tell: Tell,
) -> Record:
    """Train a cell to its end, unless it is there, and give what was seen of the training."""
    done = folder / "training.json"
    if done.exists():
        held = read_json(done)
        check_facts(done, held, {"encoding": encoding, "seed": seed, "config": config.training()})
        return Record(**held["record"])
    trainer = Trainer(config, encoding, seed, splits, vocabulary, folder)
    told = 0.0

    def progress(record: Record, loss: float) -> None:
        nonlocal told
        if time.monotonic() - told > 0.5 or record.status != "training":
            told = time.monotonic()
            tell(
                {
                    "phase": "training",
                    "step": record.step,
                    "steps": record.steps,
                    "loss": loss,
                    "tokens_per_s": record.tokens_per_s,
                }
            )

    record = trainer.run(progress)
    write_json(done, {**trainer.facts, "precision": trainer.precision, "record": asdict(record)})
    (folder / "last.safetensors").unlink(missing_ok=True)
    return record


def finish(config: Config, record: Record, folder: Path) -> Path:
    """Write the model that translates, ``model.safetensors``: the mean of snapshots or the best."""
    if config.select == "best":
        chosen = [best_snapshot(folder, record)]
    else:
        chosen = snapshots(folder)[-config.average :]
    tensors, facts = mean_of(chosen)
    facts |= {"select": config.select, "average": len(chosen), "steps": record.steps}
    path = folder / "model.safetensors"
    write_tensors(path, tensors, facts)
    return path


def mean_of(chosen: list[Path]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Give the mean of these snapshots' parameters, and the facts of the last."""
    held = [read_tensors(path) for path in chosen]
    mean = {
        name: torch.stack([tensors[name].double() for tensors, _ in held]).mean(0).float()
        for name in held[0][0]
    }
    return mean, held[-1][1]


def load_model(path: Path, device: torch.device) -> tuple[Transformer, Config]:
    """Build the model of a ``model.safetensors`` or a snapshot, for translating, and its config."""
    tensors, facts = read_tensors(path)
    if "config" not in facts or "encoding" not in facts:
        raise ValueError(f"{path} is no model of ropewalk: it names no config")
    config = Config.model_validate(facts["config"])
    vocabulary = tensors["embedding.weight"].shape[0]
    model = build_model(config, facts["encoding"], facts["seed"], vocabulary)
    model.load_state_dict(tensors)
    return model.to(device).eval(), config


def is_translated(folder: Path, split: str, config: Config) -> bool:
    """Tell whether the split's hypotheses are there, made as the config says."""
    path = folder / f"{split}.json"
    if not path.exists() or not (folder / f"{split}.hypotheses.txt").exists():
        return False
    return bool(read_json(path)["decoding"] == config.decoding())


def read_hypotheses(folder: Path, split: str) -> tuple[list[str], float]:
    """Give the hypotheses of a split and the seconds they took."""
    lines = (folder / f"{split}.hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
    return lines, float(read_json(folder / f"{split}.json")["seconds"])


def _write_hypotheses(
    folder: Path, split: str, texts: list[str], seconds: float, config: Config
) -> None:
    text = "".join(" ".join(t.splitlines()) + "\n" for t in texts)
    write_bytes(folder / f"{split}.hypotheses.txt", text.encode())
    write_json(folder / f"{split}.json", {"decoding": config.decoding(), "seconds": seconds})


def _main(run: str, encoding: str, seed: str) -> int:
    def tell(event: dict[str, Any]) -> None:
        print(json.dumps(event), flush=True)

    try:
        run_cell(Path(run), encoding, int(seed), tell)
    except KeyboardInterrupt:
        return 130
    except ValueError as error:
        tell({"error": " ".join(str(error).split())})
        return 1
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        tell({"error": f"{what}; what was written before is whole, and the same command goes on"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
