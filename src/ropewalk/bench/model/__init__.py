"""Speed of a transformers model before and after `patch`, and how far its logits move."""
