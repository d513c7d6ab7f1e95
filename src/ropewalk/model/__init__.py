"""Attention, its caches and transformers; they receive position encodings as arguments."""

from ropewalk.model.attention import Attention, AttentionOutput
from ropewalk.model.cache import DecoderCache, KeyValueCache, LinearAttentionCache
from ropewalk.model.context import ContextPart
from ropewalk.model.features import rotated_dim
from ropewalk.model.initialize import initialize
from ropewalk.model.language_model import LanguageModel
from ropewalk.model.softmax_attention import attention_probabilities
from ropewalk.model.transformer import AttentionMaps, Transformer, TransformerShape

__all__ = [
    "Attention",
    "AttentionMaps",
    "AttentionOutput",
    "ContextPart",
    "DecoderCache",
    "KeyValueCache",
    "LanguageModel",
    "LinearAttentionCache",
    "Transformer",
    "TransformerShape",
    "attention_probabilities",
    "initialize",
    "rotated_dim",
]
