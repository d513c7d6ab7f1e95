"""Translation of text, or of token ids, with a trained model."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import BinaryIO

from ropewalk.files import shown_path
from ropewalk.lab.config import DECODING_FIELDS, validated
from ropewalk.lab.config_sources import read_run_config
from ropewalk.lab.data.batches import EncodedSplit, even_batches, source_batch
from ropewalk.lab.decoding.beam_search import Hypothesis, beam_search, best
from ropewalk.lab.decoding.processes import on_each_core
from ropewalk.lab.models import load_translator
from ropewalk.lab.tensors import read_tensors
from ropewalk.lab.tokens import Tokens
from ropewalk.machine import pick_device
from ropewalk.model import Transformer

# Limits for one line: the time of a search grows with the square of its length.
MOST_CHARACTERS = 20_000
MOST_TOKENS = 2_000


def most_tokens(model: Transformer, source: int) -> int:
    """Return the cap on a translation's length, for a source of so many tokens with its end mark.

    It is twice the source's length plus ten, or where a learned position table ends, if that is
    earlier.
    """
    positions = model.decoder_encoding.max_positions
    return 2 * source + 10 if positions is None else min(2 * source + 10, positions)


def translate_ids(
    model: Transformer, sources: Sequence[list[int]], *, beam: int, tokens: int = 8192
) -> list[list[Hypothesis]]:
    """Translate each source (ids without end mark), in batches of sources of similar length.

    tokens: a batch has at most `tokens / beam` source tokens, with padding.

    The results are in the order of the sources. On CPU, several batches are searched at once, each
    in its own process with a single thread (`on_each_core`). This does not change the results.
    """
    split = EncodedSplit(list(sources), [[] for _ in sources])
    device = model.embedding.weight.device
    batches = even_batches(split, tokens=tokens // max(1, beam))

    def search(rows: list[int]) -> list[list[Hypothesis]]:
        source, mask = source_batch([sources[i] for i in rows])
        limits = [most_tokens(model, len(sources[i]) + 1) for i in rows]
        return beam_search(model, source.to(device), mask.to(device), beam=beam, max_tokens=limits)

    found: list[list[Hypothesis]] = [[] for _ in sources]
    batches.reverse()  # long sentences first, so that no core waits long for the last batch
    results = on_each_core(search, batches) if device.type == "cpu" else map(search, batches)
    for rows, hypotheses in zip(batches, results, strict=True):
        for i, ranked in zip(rows, hypotheses, strict=True):
            found[i] = ranked
    return found


class Translator:
    """A trained model with its vocabulary: sentences in, sentences out."""

    def __init__(
        self, model: Transformer, tokens: Tokens, beam: int, length_penalty: float
    ) -> None:
        self.model, self.tokens = model, tokens
        self.beam, self.length_penalty = beam, length_penalty

    @classmethod
    def load(
        cls,
        path: Path,
        beam: int | None = None,
        length_penalty: float | None = None,
        device: str = "auto",
    ) -> Translator:
        """Load `model.safetensors`, or the only model below a folder, with its run's vocabulary.

        beam and length_penalty default to the settings that the model was scored with.
        """
        file = find_model(path)
        model, _ = load_translator(file, pick_device(device))
        run = next((p for p in file.resolve().parents if (p / "tokenizer.json").exists()), None)
        if run is None:
            raise ValueError(
                f"{file} has no tokenizer.json in the folders above it; name a model inside its "
                f"run folder"
            )
        tokens = Tokens.of_run(run)
        if tokens.size != model.shape.vocabulary:
            raise ValueError(
                f"{run / 'tokenizer.json'} has {tokens.size} tokens, but {file} was trained with "
                f"{model.shape.vocabulary}; they belong to different runs"
            )
        settings = read_tensors(file)[1].get("decoding", {})  # a snapshot has none
        settings = {name: settings[name] for name in DECODING_FIELDS if name in settings}
        given = {"beam": beam, "length_penalty": length_penalty}
        settings |= {name: value for name, value in given.items() if value is not None}
        config = validated({**read_run_config(run).model_dump(), **settings, "sweep": {}})
        return cls(model, tokens, config.beam, config.length_penalty)

    def __call__(self, sentences: Sequence[str]) -> list[str]:
        """Translate each sentence; an empty one stays empty.

        Raises ValueError if a sentence has too many characters or tokens.
        """
        texts = {i: sentence for i, sentence in enumerate(sentences) if sentence.strip()}
        _check_lengths(texts, "characters", MOST_CHARACTERS)
        ids = dict(zip(texts, self.tokens.encode([*texts.values()]), strict=True))
        _check_lengths(ids, "tokens", MOST_TOKENS)
        translations = translate_ids(self.model, [*ids.values()], beam=self.beam)
        out = [""] * len(sentences)
        for i, hypotheses in zip(ids, translations, strict=True):
            out[i] = self.tokens.decode(best(hypotheses, self.length_penalty).ids)
        return out


def _check_lengths(lines: Mapping[int, Sized], unit: str, most: int) -> None:
    """Raise ValueError if a line, by its index, is too long."""
    for index, line in lines.items():
        if len(line) > most:
            raise ValueError(
                f"line {index + 1} has {len(line)} {unit}, but at most {most} are allowed; write "
                f"one sentence per line"
            )


def read_sentences(file: Path | None) -> list[str]:
    """Return the lines of a UTF-8 file, or of standard input if `file` is None."""
    if file is None:
        return _lines(sys.stdin.buffer, "standard input")
    try:
        with file.open("rb") as opened:
            return _lines(opened, shown_path(file))
    except OSError as error:
        raise ValueError(f"file {shown_path(file)} can't be read: {error.strerror}") from None


def _lines(opened: BinaryIO, name: str) -> list[str]:
    most = 4 * MOST_CHARACTERS  # bytes: a character has at most four
    out = []
    for number, line in enumerate(iter(lambda: opened.readline(most + 1), b""), 1):
        if len(line) > most:
            raise ValueError(
                f"{name}, line {number} is longer than {most} bytes, the limit for one line; "
                f"write one sentence per line"
            )
        try:
            out.append(line.decode("utf-8").strip())
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name} must be UTF-8, got byte 0x{line[error.start]:02x} in line {number}"
            ) from None
    return out


def find_model(path: Path) -> Path:
    """Return a model's file, or the only `model.safetensors` below a folder."""
    if os.path.isfile(path):  # Path.is_file raises if a name is too long
        return path
    if not os.path.isdir(path):
        raise ValueError(f"model must be an existing file or folder, got {shown_path(path)}")
    found = sorted(path.rglob("model.safetensors"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise ValueError(
            f"model must contain a model.safetensors, got {shown_path(path)}; train one there"
        )
    names = ", ".join(str(f.parent.relative_to(path)) for f in found)
    raise ValueError(f"model must name one of the models in {shown_path(path)}: {names}")
