"""Every field of a config: its type, bounds, default and description."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ropewalk.encodings.outside import ImportedSource

# Bounds far beyond published models: they catch slips of the keyboard before anything runs.
MOST_LAYERS = 1_000
MOST_VOCABULARY = 2**20
MOST_BEAM = 100
MOST_LENGTH_PENALTY = 100

Positive = Annotated[int, Field(ge=1, lt=2**31)]
Size = Annotated[int, Field(ge=1, le=2**17)]
Layers = Annotated[int, Field(ge=1, le=MOST_LAYERS)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Vocabulary = Annotated[int, Field(ge=1, le=MOST_VOCABULARY)]
Epochs = Annotated[float, Field(gt=0, le=1e6)]
Scale = Annotated[float, Field(gt=0, le=1e38)]
Warmup = Annotated[float, Field(ge=0, le=1e9)]
Beam = Annotated[int, Field(ge=1, le=MOST_BEAM)]
Penalty = Annotated[float, Field(ge=0, le=MOST_LENGTH_PENALTY)]


class ConfigFields(BaseModel):
    """The fields of a config, in the order in which files and listings show them."""

    preset: str = Field("default", description="preset that the other defaults come from")
    task: str = Field("translation", description="what is trained and scored; see ropewalk tasks")
    # What is compared.
    encodings: tuple[str, ...] = Field(
        ("sinusoidal", "rotary"), description="encodings to compare; see ropewalk encodings"
    )
    seeds: tuple[Seed, ...] = Field(
        (1, 2, 3), description="seeds of parameters, data order and dropout"
    )
    sweep: dict[str, tuple[Any, ...]] = Field(
        {}, description="values that each encoding tries on validation data (--sweep)"
    )
    imports: tuple[ImportedSource, ...] = Field(
        (), description="sources of user-defined encodings (--import)"
    )
    # Data.
    data: str = Field("phrases", description="built-in corpus, files, folder or hf:NAME")
    source: str = Field("de", description="source language: ending of the files' names")
    target: str = Field("en", description="target language: ending of the files' names")
    lowercase: bool = Field(False, description="lowercase before training, score without case")
    vocabulary: Vocabulary = Field(2000, description="byte-pair tokens, shared by both languages")
    max_tokens: Positive = Field(
        100, description="training pairs with more tokens on either side are left out"
    )
    train_length: Positive = Field(
        64, description="trained length: tokens of a window, or items of a generated sequence"
    )
    length_multiples: tuple[Positive, ...] = Field(
        (1, 2, 4, 8), description="multiples of train_length that are scored"
    )
    examples: Positive = Field(
        1000, description="generated training examples: sequences, built-in tales or phrases"
    )
    test_examples: Positive = Field(
        100, description="examples of each test split; of text, windows of the greatest length"
    )
    mask_ratio: Share = Field(0.15, description="share of tokens that masked-lm predicts")
    # Model.
    width: Size = Field(128, description="model width")
    heads: Size = Field(4, description="query heads; must divide width")
    kv_heads: Size | None = Field(None, description="key/value heads; null: as many as heads")
    feed_forward: Size = Field(512, description="width of the feed-forward layers")
    encoder_layers: Layers = Field(2, description="layers of translation's encoder")
    decoder_layers: Layers = Field(2, description="layers of translation's decoder")
    layers: Layers = Field(2, description="layers of the single stack of the other tasks")
    attention: str = Field(
        "softmax", description="softmax, or linear: performer, elu, performer(features=64)"
    )
    dropout: Fraction = Field(0.0, description="dropout rate")
    # Training.
    epochs: Epochs = Field(1.3, description="passes over the training data")
    batch_tokens: Positive = Field(400, description="padded tokens of a batch, on its longer side")
    batch_sentences: Positive | None = Field(
        None, description="sentences of a training batch; null: as many as batch_tokens allows"
    )
    accumulate: Positive = Field(1, description="batches whose gradients make one step")
    learning_rate: Scale = Field(3e-3, description="peak learning rate; with noam, its factor")
    warmup: Warmup = Field(0.1, description="warmup steps; below 1, a share of all steps")
    schedule: Literal["linear", "noam"] = Field(
        "linear", description="after warmup: to zero, or by 1/sqrt(step)"
    )
    label_smoothing: Fraction = Field(0.1, description="label smoothing")
    clip: Scale = Field(1.0, description="largest norm of the gradient")
    validations: Positive = Field(
        5, description="how often validation loss is computed and a snapshot saved"
    )
    keep: Positive = Field(5, description="newest snapshots that stay on disk, besides the best")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="precision of training"
    )
    device: str = Field("auto", description="auto, cpu, cuda, …")
    parallel: Literal["ddp", "fsdp"] = Field(
        "ddp", description="under torchrun: copies of the model, or parts of its parameters (fsdp)"
    )
    compile: bool = Field(False, description="train with torch.compile: slow start, faster steps")
    # Scoring.
    beam: Beam = Field(4, description="beam width; 1: greedy")
    length_penalty: Penalty = Field(
        0.6, description="power of the length that beam scores are divided by"
    )
    select: Literal["average", "best"] = Field(
        "average", description="mean of the last snapshots, or the best one"
    )
    average: Positive = Field(1, description="snapshots that are averaged; at most keep")
    splits: tuple[str, ...] | None = Field(
        None, description="splits to score; null: every test split"
    )
