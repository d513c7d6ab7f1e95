"""The room Attention: runs of `ropewalk compare`, their stored maps, and attention to typed text.

The lab is imported when a run is opened: nothing else in the explorer needs it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.checks import needing
from ropewalk.explorer.questions import MOST_PATH, number_of, text_of
from ropewalk.files import shown_path

if TYPE_CHECKING:
    from torch import Tensor

    from ropewalk.lab.decoding.translator import Translator
    from ropewalk.lab.results import AttentionMap, AttentionMaps, Results
    from ropewalk.lab.tokens import Tokens
    from ropewalk.model import LanguageModel


MOST_TEXT = 500  # characters
MOST_TOKENS = 64  # of a typed text: beyond, a map's cells are too small to see
MOST_WEIGHTS = 4_000_000  # of one answer, which takes two bytes for each
MOST_MODELS = 8  # that stay in memory


def run_answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return what a run compares: its task, encodings, and the sentences of its stored maps.

    question: `run`, a folder. Raises ValueError if it is no finished run, ImportError if the lab
    is not installed.
    """
    run, results, stored = read_run(text_of(question, "run", MOST_PATH))
    return {
        "task": results.task,
        "translates": results.is_translation,
        "typed": (run / "tokenizer.json").exists(),
        "seed": results.config.seeds[0],
        "rule": stored.rule,
        "sentences": [sentence.as_json() for sentence in stored.sentences],
        "encodings": [{"slug": row.slug, "name": row.name} for row in results.encodings],
        "most": MOST_TOKENS,
    }


def attention_answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the attention of every encoding's first seed.

    question: `run`; `text`, or "" for the stored maps of sentence number `example`; `target`, what
    the decoder reads, or "" for each model's own translation. The answer has for each slug either
    `error`, or `maps` (the packed weights of all layers and heads by site) with `translation`.
    """
    run, results, stored = read_run(text_of(question, "run", MOST_PATH))
    text = text_of(question, "text", MOST_TEXT).strip()
    target = text_of(question, "target", MOST_TEXT).strip()
    if not text:
        place = number_of(question, "example", 0, 1000)
        return {"encodings": _stored(results, stored, place)}
    if not (run / "tokenizer.json").exists():
        raise ValueError("this run's task has no text to type: choose one of its examples")
    find = _translated if results.is_translation else _read_text
    told: dict[str, Any] = {}
    for row in results.encodings:
        path = row.cell(results.config.seeds[0]).folder(run) / "model.safetensors"
        try:
            if not path.exists():
                raise ValueError(
                    f"there is no model at {shown_path(path)}: its training diverged, or the file "
                    f"was deleted since"
                )
            told[row.slug] = find(run, path, text, target)
        except ValueError as error:  # such as a text beyond the positions of one encoding
            told[row.slug] = {"error": str(error)}
    return {"encodings": told}


def _stored(results: Results, stored: AttentionMaps, place: int) -> dict[str, Any]:
    if place >= len(stored.sentences):
        raise ValueError(f"example must be one of {len(stored.sentences)}, got {place + 1}")
    maps, why = stored.encodings, "it has no stored maps, because it has no model of the first seed"
    return {
        row.slug: {"maps": _packed(maps[row.slug].sentences[place]), "translation": None}
        if row.slug in maps
        else {"error": why}
        for row in results.encodings
    }


def _translated(run: Path, path: Path, text: str, target: str) -> dict[str, Any]:
    import torch

    from ropewalk.lab.data.batches import pad, source_batch
    from ropewalk.lab.decoding.beam_search import best
    from ropewalk.lab.decoding.translator import translate_ids
    from ropewalk.lab.tokens import BOS, EOS

    held = _translator(path, path.stat().st_mtime_ns)
    source = _encoded(held.tokens, "the sentence", text)
    with torch.inference_mode():
        if target:
            ids = _encoded(held.tokens, "the target", target)
        else:
            found = translate_ids(held.model, [source], beam=held.beam)[0]
            ids = list(best(found, held.length_penalty).ids)
        read = ids[: 2 * MOST_TOKENS]
        rows, mask = source_batch([source])
        maps = held.model.attention_maps(rows, pad([[BOS, *read]]), mask)
    asked, given = held.tokens.pieces([*source, EOS]), held.tokens.pieces([BOS, *read])
    sites = {
        "encoder": (asked, asked, maps.encoder),
        "decoder": (given, given, maps.decoder),
        "cross": (given, asked, maps.cross),
    }
    return {"translation": None if target else held.tokens.decode(ids), "maps": _live(sites)}


def _read_text(run: Path, path: Path, text: str, target: str) -> dict[str, Any]:
    import torch

    from ropewalk.lab.tokens import Tokens

    del target  # a language model has none
    ids = _encoded(tokens := Tokens.of_run(run), "the text", text)
    with torch.inference_mode():
        maps = _language_model(path, path.stat().st_mtime_ns).attention_maps(torch.tensor([ids]))
    labels = tokens.pieces(ids)
    return {"translation": None, "maps": _live({"self": (labels, labels, maps)})}


def _encoded(tokens: Tokens, what: str, text: str) -> list[int]:
    ids = tokens.encode([text])[0]
    if len(ids) > MOST_TOKENS:
        raise ValueError(f"{what} must have at most {MOST_TOKENS} tokens, got {len(ids)}")
    return ids


@lru_cache(maxsize=MOST_MODELS)
def _translator(path: Path, changed: int) -> Translator:
    """Return the model of a file. changed: when, so that a file that changed is read again."""
    from ropewalk.lab.decoding.translator import Translator

    return Translator.load(path, device="cpu")


@lru_cache(maxsize=MOST_MODELS)
def _language_model(path: Path, changed: int) -> LanguageModel:
    import torch

    from ropewalk.lab.models import load_model
    from ropewalk.model import LanguageModel

    model = load_model(path, torch.device("cpu"))[0]
    if not isinstance(model, LanguageModel):
        raise ValueError(f"{path} must be a language model")
    return model


def _live(sites: dict[str, tuple[list[str], list[str], list[Tensor]]]) -> dict[str, Any]:
    from ropewalk.lab.results import AttentionMap

    return _packed(
        {
            site: AttentionMap(
                rows=tuple(rows), columns=tuple(columns), weights=[x[0].tolist() for x in maps]
            )
            for site, (rows, columns, maps) in sites.items()
        }
    )


def _packed(sites: Mapping[str, AttentionMap]) -> dict[str, Any]:
    """Return maps by site as the report's page has them, if they are few."""
    from ropewalk.lab.report.page import packed

    count = sum(
        len(maps.rows) * len(maps.columns) * sum(map(len, maps.weights)) for maps in sites.values()
    )
    if count > MOST_WEIGHTS:
        raise ValueError(
            f"the maps must have at most {MOST_WEIGHTS:,} weights, got {count:,}: type a shorter "
            f"text"
        )
    return packed(sites)


def read_run(text: str) -> tuple[Path, Results, AttentionMaps]:
    """Return a run's folder, its results and its stored maps.

    Raises ValueError if `text` names no finished run, ImportError if the lab is not installed.
    """
    with needing("opening a run", ImportError):
        from ropewalk.lab.results import read_attention, read_results
    if not text.strip() or "\0" in text:
        raise ValueError("run must name the folder that ropewalk compare wrote")
    run = Path(os.path.expanduser(text.strip()))
    if not os.path.isdir(run):
        raise ValueError(
            f"run must be the folder of a ropewalk compare, got {shown_path(run)}: no such folder"
        )
    if not (run / "results.json").exists():
        raise ValueError(
            f"run must be a finished ropewalk compare, got {shown_path(run)} without results.json"
        )
    results = read_results(run)
    if not (run / "attention.json").exists():
        why = (  # a run's own folder has its config
            "the run was stopped before it wrote that. Run its command again: what is trained "
            "already is not trained again"
            if (run / "config.json").exists()
            else "published results have no models. Run the command in its README.md, and open the "
            "folder that it writes"
        )
        raise ValueError(f"{shown_path(run)} has results but no attention.json: {why}")
    return run, results, read_attention(run)
