"""The tokens of a passage for the model that is measured."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ropewalk.tools.models.source import Source, random_tokens

PASSAGE = 64  # tokens


def passage(source: Source, count: int = PASSAGE) -> tuple[Tensor, str]:
    """Return the tokens of a passage, (1, count), and what they are.

    They are English text if the folder has a tokenizer.json, else random.
    """
    config = source.config.get_text_config(decoder=True)
    size = int(config.vocab_size)
    file = source.path / "tokenizer.json"
    if source.has_weights and file.is_file():
        ids = _english(file)
        if len(ids) >= count and max(ids) < size:
            return torch.tensor([ids[:count]]), "English text"
    return random_tokens(source, count), "random tokens"


def _english(file: Path) -> list[int]:
    try:
        from tokenizers import Tokenizer

        return list(Tokenizer.from_file(str(file)).encode(TEXT).ids)
    except Exception:  # a broken tokenizer, or another format: random tokens serve
        return []


TEXT = (
    "A ropewalk is a long, straight, covered path where strands of material are laid before they "
    "are twisted into rope. Workers walked backwards along the hall, paying out hemp fiber from a "
    "bundle around the waist, while a boy turned the wheel that spun it. The longest rope that a "
    "yard could make was as long as its hall, so that a port with large ships needed a hall of "
    "several hundred meters. Fires were common, because hemp dust burns easily and tar was heated "
    "near it. Most halls closed when wire rope and machines replaced the work by hand."
)
