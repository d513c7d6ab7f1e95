"""A causal language model of transformers from files, and the token ids of a text for it.

A model is a folder with weights, or a config alone, which gets random weights. Nothing is unpickled
or downloaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.checks import ArgumentNeededError, check_int, needing, shown
from ropewalk.files import MOST_DATA_BYTES, read_text, shown_path
from ropewalk.machine import check_fits
from ropewalk.rotary.config.config_json import UnreadableConfigError
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.tools.model_cost import count_weights
from ropewalk.tools.verify.load_target import (
    check_folder,
    errors_of,
    import_transformers,
    load_model,
)

PICKLED = (".bin", ".pt", ".pth")
SEED = 0
CAUSAL, IMAGE_TEXT = "AutoModelForCausalLM", "AutoModelForImageTextToText"


@dataclass(frozen=True)
class Source:
    """A model's config, and whether weights come with it.

    config: transformers' config of the model, or of its text part if weights are random.
    spec: its ropes.
    of_many: whether text is one of several inputs of the model; only text is used.
    builder: the class of transformers that builds a model with random weights.
    name: what messages call the argument that named the model.
    """

    path: Path
    config: Any
    has_weights: bool
    spec: ModelSpec
    trust_remote_code: bool
    of_many: bool = False
    builder: str = CAUSAL
    name: str = "--model"


def read_source(path: Path, trust_remote_code: bool = False, *, name: str = "--model") -> Source:
    """Return what is at this path: a folder with config.json, or a config file.

    name: what messages call the argument.

    Raises ValueError if it is no causal language model with a rope. Nothing is unpickled.
    """
    folder = path.is_dir()
    if not (path / "config.json" if folder else path).is_file():
        raise ValueError(
            f"{name} must be a config.json or a folder that contains one, got {shown_path(path)}"
        )
    try:  # errors suggest no argument that the command does not have
        spec = ModelSpec.from_config(path)  # also rejects absurd sizes
    except UnreadableConfigError as error:
        says = f"{name} must be a model's folder or a config.json, got {error.got}"
        raise ValueError(says) from error
    except ArgumentNeededError as error:
        says = f"{name} must have a rope that ropewalk knows: {error.what}"
        raise ValueError(says) from error
    if not any(layer.rope for layer in spec.stacks.get("text", ())):
        raise ValueError(f"{name} must have a text stack with a rope, got {shown_path(path)}")
    transformers = import_transformers()
    transformers.logging.disable_progress_bar()
    with quiet(), errors_of(path):
        config = transformers.AutoConfig.from_pretrained(
            path, local_files_only=True, trust_remote_code=trust_remote_code
        )
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(
            f"{name} must be a causal language model, got an encoder-decoder, "
            f"{config.model_type}, in {shown_path(path)}"
        )
    has_weights = folder and any(
        p.suffix in (".safetensors", *PICKLED) for p in path.iterdir() if p.is_file()
    )
    text = config.get_text_config(decoder=True)
    check_int("vocab_size", getattr(text, "vocab_size", None), 1)
    of_many = text is not config
    source = Source(path, config, has_weights, spec, trust_remote_code, of_many, name=name)
    if has_weights:
        check_folder(path)
        return source
    is_remote = trust_remote_code and hasattr(config, "auto_map")
    if type(text) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING or is_remote:
        return replace(source, config=text)
    if type(config) in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return replace(source, builder=IMAGE_TEXT)
    raise ValueError(
        f"{name} must be a causal language model, got model_type {config.model_type} in "
        f"{shown_path(path)}"
    )


def load(source: Source, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """Return the model in eval mode. Raises ValueError if it generates no text, or does not run.

    Frequencies keep the dtype in which the model's code builds them.
    """
    with quiet():
        if source.has_weights:
            model = load_model(source.path, trust_remote_code=source.trust_remote_code, dtype=dtype)
        else:
            torch.manual_seed(SEED)
            model = _build(source, dtype).eval()
    generates = getattr(model, "can_generate", lambda: False)()
    if not generates and "CausalLM" not in type(model).__name__:
        raise ValueError(
            f"{source.name} must be a causal language model, got {type(model).__name__} in "
            f"{shown_path(source.path)}"
        )
    model = model.to(device)
    try:
        with quiet(), torch.no_grad():
            shape = model(input_ids=random_tokens(source, 2).to(device)).logits.shape
    except Exception as error:  # code of a model may raise anything
        says = f"{type(error).__name__}: {shown(' '.join(str(error).split()), 200)}"
        raise ValueError(
            f"{source.name} must run on tokens, got {says} from {type(model).__name__} in "
            f"{shown_path(source.path)}"
        ) from error
    if shape[:2] != (1, 2):
        raise ValueError(
            f"{source.name} must return logits for each token, got the shape {tuple(shape)} for "
            f"2 tokens"
        )
    return model


def check_memory(
    source: Source, dtype: torch.dtype, device: torch.device, trains: bool = False
) -> None:
    """Raise ValueError if weights, and gradients in training, need more than the free memory.

    The ways out are options of the command: --dtype and, for training, --work.
    """
    count = _weight_count(source)
    needed = count * dtype.itemsize * (2 if trains else 1)
    ways = {
        "--work prefill,decode": 2 if trains else 1,
        "--dtype bfloat16": dtype.itemsize // 2,
        "--work prefill,decode --dtype bfloat16": dtype.itemsize // 2 * (2 if trains else 1),
    }
    smaller = "a smaller model" if source.has_weights else "a config with fewer layers"
    kind = str(dtype).removeprefix("torch.")
    check_fits(
        needed,
        device,
        rule=f"{source.name} must fit into memory",
        what=f"its {count:,} weights in {kind}{' and their gradients' if trains else ''} need",
        ways={way: needed / factor for way, factor in ways.items() if factor > 1} | {smaller: 0},
    )


def random_tokens(source: Source, count: int) -> Tensor:
    """Return tokens (1, count), drawn uniformly from the vocabulary."""
    config = source.config.get_text_config(decoder=True)
    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(int(config.vocab_size), (1, count), generator=generator)


@contextmanager
def quiet() -> Iterator[None]:
    """Context in which the model's libraries log errors only."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _build(source: Source, dtype: torch.dtype) -> nn.Module:
    with errors_of(source.path):
        model: nn.Module = getattr(import_transformers(), source.builder).from_config(
            source.config, dtype=dtype, trust_remote_code=source.trust_remote_code
        )
    return model


def _weight_count(source: Source) -> int:
    if not source.has_weights:
        with quiet(), torch.device("meta"):
            return sum(p.numel() for p in _build(source, torch.float32).parameters())
    try:
        return count_weights(source.path)
    except ValueError as error:
        raise ValueError(f"{source.name} must have weights that can be read, got {error}") from None


TOKENIZER = "tokenizer.json"
MOST_TOKENIZER_BYTES = 2**27  # Gemma 3's has 33 million
CHARACTERS = 8  # per token of the part of a text that is encoded first


def read_tokens(source: Source, file: Path, least: int, most: int) -> Tensor:
    """Return the token ids (N,) of a UTF-8 text, the first `most` if it has more.

    Special tokens, such as one for the beginning, are not added; `start_tokens` returns them.

    Raises ValueError if the folder has no readable tokenizer.json, or if the text is not UTF-8, has
    fewer than `least` tokens, or has ids that the model does not know.
    """
    tokenizer = _tokenizer(source)
    ids = first_tokens(
        lambda part: list(tokenizer.encode(part, add_special_tokens=False).ids),
        text_of(file),
        file,
        least,
        most,
    )
    _check_ids(source, ids)
    return torch.tensor(ids, dtype=torch.int64)


def text_of(file: Path) -> str:
    """Return the text of a file. Raises ValueError if it is not UTF-8."""
    try:
        return read_text(file, MOST_DATA_BYTES)
    except ValueError as error:
        raise ValueError(f"--text must be a UTF-8 text file, got {error}") from None


def first_tokens(
    encode: Callable[[str], list[int]], text: str, file: Path, least: int, most: int
) -> list[int]:
    """Return the first ids of a file's text, at most `most`; of a long one, only a part is encoded.

    Raises ValueError if there are fewer than `least`.
    """
    # The end of a part that is cut may be encoded differently, so it must not be returned.
    count = CHARACTERS * (most + 8)
    ids = encode(text[:count])
    while len(ids) < most + 8 and count < len(text):
        count *= 2
        ids = encode(text[:count])
    if len(ids) < least:
        raise ValueError(
            f"--text {shown_path(file)} has {len(ids):,} tokens, at least {least:,} are needed"
        )
    return ids[:most]


def start_tokens(source: Source) -> Tensor:
    """Return the special tokens (N,) that the tokenizer puts before a text; often one or none.

    Raises ValueError as `read_tokens` does.
    """
    encoded = _tokenizer(source).encode("a")
    mask = [*encoded.special_tokens_mask, 0]
    ids = list(encoded.ids[: mask.index(0)])
    _check_ids(source, ids)
    return torch.tensor(ids, dtype=torch.int64)


def tokenizer_of(folder: Path, name: str) -> Any:
    """Return the tokenizer in a model's folder, which cuts and fills up no text.

    name: what messages call the argument that named the model. Raises ValueError without one.
    """
    file = folder / TOKENIZER
    if not file.exists():
        raise ValueError(f"{name} must have a {TOKENIZER} to read a text, got {shown_path(folder)}")
    with needing("reading a text", ImportError):
        from tokenizers import Tokenizer
    content = read_text(file, MOST_TOKENIZER_BYTES)
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # the library's parser raises various types
        raise ValueError(
            f"{name} must have a {TOKENIZER} that the tokenizers library reads, got "
            f"{shown(str(error), 200)} in {shown_path(file)}"
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _tokenizer(source: Source) -> Any:
    folder = source.path if source.path.is_dir() else source.path.parent
    return tokenizer_of(folder, source.name)


def _check_ids(source: Source, ids: list[int]) -> None:
    size = int(source.config.get_text_config(decoder=True).vocab_size)
    if ids and max(ids) >= size:
        raise ValueError(
            f"{source.name} must have a {TOKENIZER} with ids below its vocab_size {size:,}, got "
            f"the id {max(ids):,}"
        )
