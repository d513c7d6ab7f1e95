"""The model of a cell: built from its config, read back from its file."""

from __future__ import annotations

from pathlib import Path

import torch

from ropewalk.encodings import build, build_encoder_decoder
from ropewalk.lab.checkpoint import load_weights, read_tensors
from ropewalk.lab.config import Config
from ropewalk.model import LanguageModel, Transformer, initialise

Model = Transformer | LanguageModel


def build_model(config: Config, encoding: str, seed: int, vocabulary: int) -> Model:
    """Build the model of a cell, each parameter drawn from the seed and its name."""
    shape = config.shape(vocabulary)
    model: Model
    if config.task == "translation":
        stacks = shape.stack_shape(causal=False), shape.stack_shape(causal=True)
        model = Transformer(shape, *build_encoder_decoder(encoding, *stacks))
    else:
        stack = shape.stack_shape(causal=config.causal)
        model = LanguageModel(shape, build(encoding, stack), causal=config.causal)
    initialise(model, seed)
    return model


def load_model(path: Path, device: torch.device) -> tuple[Model, Config]:
    """Build the model of a ``model.safetensors`` or a snapshot, for use, and its config."""
    tensors, facts = read_tensors(path)
    if "config" not in facts or "encoding" not in facts:
        raise ValueError(f"{path} is no model of ropewalk: it names no config")
    config = Config.model_validate(facts["config"])
    vocabulary = tensors["embedding.weight"].shape[0]
    model = build_model(config, facts["encoding"], facts["seed"], vocabulary)
    load_weights(model, tensors)
    return model.to(device).eval(), config


def load_translator(path: Path, device: torch.device) -> tuple[Transformer, Config]:
    """Load a model that translates; one of another task is a ValueError that names it."""
    model, config = load_model(path, device)
    if not isinstance(model, Transformer):
        raise ValueError(f"{path} must be a model of translation, got one of {config.task}")
    return model, config
