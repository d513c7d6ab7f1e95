"""A model of transformers and the tokens of a text, from a local folder. Nothing is unpickled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ropewalk.checks import shown
from ropewalk.files import shown_path
from ropewalk.machine import check_fits
from ropewalk.tools import model_files
from ropewalk.tools.model_cost import count_weights
from ropewalk.tools.verify.load_target import class_of, errors_of, import_transformers, load_model

SIGNS = str.maketrans({" ": "▁", "Ġ": "▁", "\n": "⏎", "Ċ": "⏎", "\t": "⇥"})
LONGEST = 512  # tokens; more are cells too small to see


@dataclass(frozen=True)
class OpenedModel:
    """A model in eval mode, the ids `(S)` of a text, and a word for each token.

    random: whether its weights are random.
    """

    model: nn.Module
    ids: Tensor
    words: tuple[str, ...]
    random: bool


def open_model(
    folder: Path,
    text: str,
    *,
    dtype: torch.dtype = torch.float32,
    random_weights: bool = False,
    trust_remote_code: bool = False,
) -> OpenedModel:
    """Return the model in a folder, on the CPU, and the tokens of a text for it.

    text: without a tokenizer.json in the folder, whole numbers: the ids. random_weights: of a
        folder without weights, from its config.json alone.

    Raises ValueError, in the words of the command line, if the folder is none of these, if the
    model does not fit into memory, or if the text has too few tokens or too many.
    """
    if not (folder / "config.json").is_file():
        raise ValueError(f"--model must be a folder with config.json, got {shown_path(folder)}")
    has_weights = any(folder.glob("*.safetensors"))
    if not has_weights and not random_weights:
        raise ValueError(
            f"--model must have *.safetensors in its folder, got {shown_path(folder)}; "
            f"--random-weights opens its config.json alone"
        )
    transformers = import_transformers()
    transformers.logging.disable_progress_bar()
    with model_files.quiet(), errors_of(folder):
        config = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=trust_remote_code
        )
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"--model must be a decoder or an encoder, got {config.model_type}: both")
    of_text = config.get_text_config()
    ids, words = _tokens(folder, text)
    most = min(LONGEST, getattr(of_text, "max_position_embeddings", None) or LONGEST)
    if not 2 <= len(ids) <= most:
        why = "the most that the page shows" if most == LONGEST else "the model's context"
        raise ValueError(f"--text must have 2 to {most:,} tokens ({why}), got {len(ids):,}")
    if max(ids) >= of_text.vocab_size or min(ids) < 0:
        raise ValueError(
            f"--text must have ids below the vocab_size {of_text.vocab_size:,}, got {max(ids):,}"
        )
    with model_files.quiet(), errors_of(folder):
        cls = class_of(transformers, config)
        build = getattr(cls, "_from_config", None) or cls.from_config
        if not has_weights:
            with torch.device("meta"):
                count = sum(p.numel() for p in build(config).parameters())
        else:
            count = count_weights(folder)
    check_fits(
        count * dtype.itemsize,
        torch.device("cpu"),
        rule="--model must fit into memory",
        what=f"its {count:,} weights in {str(dtype).removeprefix('torch.')} need",
        ways={"--dtype bfloat16": 2 * count},
    )
    with model_files.quiet(), errors_of(folder):
        if has_weights:
            model = load_model(
                folder, trust_remote_code=trust_remote_code, dtype=dtype, needs_rope=False
            )
        else:
            torch.manual_seed(model_files.SEED)
            model = build(config, dtype=dtype).eval()
    return OpenedModel(model, torch.tensor(ids), words, not has_weights)


def _tokens(folder: Path, text: str) -> tuple[list[int], tuple[str, ...]]:
    """Return ids and words, special tokens included, with signs for spaces."""
    if not (folder / model_files.TOKENIZER).exists():
        numbers = text.split()
        if not all(number.isdecimal() for number in numbers):
            raise ValueError(
                f"--text must be token ids, whole numbers, since {shown_path(folder)} has no "
                f"{model_files.TOKENIZER}, got {shown(text)}"
            )
        return [int(number) for number in numbers], tuple(numbers)
    tokenizer = model_files.tokenizer_of(folder, "--model")
    encoded = tokenizer.encode(text)
    words = []
    for piece, token in zip(encoded.tokens, encoded.ids, strict=True):
        text = (tokenizer.decode([token], skip_special_tokens=False) or piece).translate(SIGNS)
        words.append(f"▁{text}" if piece[:1] in "▁Ġ" and text[:1] != "▁" else text)
    return list(encoded.ids), tuple(words)
