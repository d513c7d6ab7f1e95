"""Attention, its cache and an encoder-decoder; position encodings come from outside."""

from ropewalk.model.attention import Attention, AttentionOutput, attention_probabilities
from ropewalk.model.cache import DecoderCache, KeyValueCache
from ropewalk.model.initialise import initialise
from ropewalk.model.transformer import AttentionMaps, Transformer, TransformerShape

__all__ = [
    "Attention",
    "AttentionMaps",
    "AttentionOutput",
    "DecoderCache",
    "KeyValueCache",
    "Transformer",
    "TransformerShape",
    "attention_probabilities",
    "initialise",
]
