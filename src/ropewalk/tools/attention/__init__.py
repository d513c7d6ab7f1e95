"""Attention of a model, head by head, with each score split by rotary pair."""

from ropewalk.tools.attention.attention import attention
from ropewalk.tools.attention.split_scores import LayerAttention, ModelAttention

__all__ = ["LayerAttention", "ModelAttention", "attention"]
