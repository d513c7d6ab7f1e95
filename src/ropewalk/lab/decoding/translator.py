"""Translate text with a trained model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ropewalk.lab.config import read_run_config
from ropewalk.lab.decoding.beam_search import best
from ropewalk.lab.decoding.beam_search import translate_ids as search
from ropewalk.lab.models import load_translator
from ropewalk.lab.tokens import Tokens
from ropewalk.machine import pick_device
from ropewalk.model import Transformer


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
        """Load ``model.safetensors``, or the one model below a folder, with its run's vocabulary.

        beam and length_penalty default to what the run was set to.
        """
        file = _find_model(path)
        model, _ = load_translator(file, pick_device(device))
        run = next((p for p in file.resolve().parents if (p / "tokenizer.json").exists()), None)
        if run is None:
            raise ValueError(
                f"{file} has no tokenizer.json in the folders above it; give a model that "
                f"lies in its run folder"
            )
        config = read_run_config(run)
        tokens = Tokens.load(run / "tokenizer.json")
        if tokens.size != model.shape.vocabulary:
            raise ValueError(
                f"{run / 'tokenizer.json'} has {tokens.size} tokens and {file} was trained with "
                f"{model.shape.vocabulary}; they are of different runs"
            )
        return cls(
            model,
            tokens,
            config.beam if beam is None else beam,
            config.length_penalty if length_penalty is None else length_penalty,
        )

    def __call__(self, sentences: Sequence[str]) -> list[str]:
        """Translate each sentence; an empty one stays empty."""
        filled = [i for i, sentence in enumerate(sentences) if sentence.strip()]
        found = search(
            self.model, self.tokens.encode([sentences[i] for i in filled]), beam=self.beam
        )
        out = [""] * len(sentences)
        for i, hypotheses in zip(filled, found, strict=True):
            out[i] = self.tokens.decode(best(hypotheses, self.length_penalty).ids)
        return out


def read_sentences(file: Path | None) -> list[str]:
    """Give the lines of a UTF-8 file, or of standard input."""
    if file is None:
        content, name = sys.stdin.buffer.read(), "standard input"
    else:
        try:
            content, name = file.read_bytes(), str(file)
        except OSError as error:
            raise ValueError(f"file {file} can't be read: {error.strerror}") from None
    lines = content.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    out = []
    for number, line in enumerate(lines, 1):
        try:
            out.append(line.decode("utf-8").strip())
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name} must be UTF-8, got byte 0x{line[error.start]:02x} in line {number}"
            ) from None
    return out


def _find_model(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise ValueError(f"model must be a file or folder that is there, got {str(path)!r}")
    found = sorted(path.rglob("model.safetensors"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise ValueError(f"model: there is no model.safetensors in {str(path)!r}; train one there")
    names = ", ".join(str(f.parent.relative_to(path)) for f in found)
    raise ValueError(f"model must name one of the models in {str(path)!r}: {names}")
