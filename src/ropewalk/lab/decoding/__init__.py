"""Text from a trained model: beam search, greedy generation, the translator."""
