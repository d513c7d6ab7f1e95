"""From a trained model to text: beam search, greedy generation, the translator."""
