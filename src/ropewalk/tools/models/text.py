"""Token ids of a text file, by the tokenizer of a model's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ropewalk.checks import shown
from ropewalk.files import MOST_DATA_BYTES, read_text, shown_path
from ropewalk.tools.models.source import Source

TOKENIZER = "tokenizer.json"
MOST_TOKENIZER_BYTES = 2**27  # Gemma 3's has 33 million
CHARACTERS = 8  # per token of the part of a text that is encoded first


def read_tokens(
    source: Source, file: Path, least: int, most: int, *, name: str = "--text"
) -> Tensor:
    """Return the token ids (N,) of a UTF-8 text, the first `most` if it has more.

    Special tokens, such as one for the beginning, are not added; `start_tokens` returns them. Of a
    long text only the beginning is encoded. name: what messages call the argument.

    Raises ValueError if the folder has no readable tokenizer.json, or if the text is not UTF-8, has
    fewer than `least` tokens, or has ids that the model does not know.
    """
    tokenizer = _tokenizer(source)
    try:
        text = read_text(file, MOST_DATA_BYTES)
    except ValueError as error:
        raise ValueError(f"{name} must be a UTF-8 text file, got {error}") from None
    # The end of a part that is cut may be encoded differently, so it must not be returned.
    count = CHARACTERS * (most + 8)
    ids = _encode(tokenizer, text[:count])
    while len(ids) < most + 8 and count < len(text):
        count *= 2
        ids = _encode(tokenizer, text[:count])
    if len(ids) < least:
        raise ValueError(
            f"{name} {shown_path(file)} has {len(ids):,} tokens, at least {least:,} are needed"
        )
    _check_ids(source, ids)
    return torch.tensor(ids[:most], dtype=torch.int64)


def start_tokens(source: Source) -> Tensor:
    """Return the special tokens (N,) that the tokenizer puts before a text; often one or none.

    Raises ValueError as `read_tokens` does.
    """
    encoded = _tokenizer(source).encode("a")
    mask = [*encoded.special_tokens_mask, 0]
    ids = list(encoded.ids[: mask.index(0)])
    _check_ids(source, ids)
    return torch.tensor(ids, dtype=torch.int64)


def _tokenizer(source: Source) -> Any:
    """Return the tokenizer of a model's folder, which cuts and fills up no text."""
    folder = source.path if source.path.is_dir() else source.path.parent
    file = folder / TOKENIZER
    if not file.exists():
        raise ValueError(
            f"{source.name} must have a {TOKENIZER} to read a text, got {shown_path(folder)}"
        )
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ImportError("tokenizers is needed to read a text: pip install tokenizers") from None
    content = read_text(file, MOST_TOKENIZER_BYTES)
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # the library's parser raises various types
        raise ValueError(
            f"{source.name} must have a {TOKENIZER} that the tokenizers library reads, got "
            f"{shown(str(error), 200)} in {shown_path(file)}"
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _encode(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def _check_ids(source: Source, ids: list[int]) -> None:
    size = int(source.config.get_text_config(decoder=True).vocab_size)
    if ids and max(ids) >= size:
        raise ValueError(
            f"{source.name} must have a {TOKENIZER} with ids below its vocab_size {size:,}, got "
            f"the id {max(ids):,}"
        )
