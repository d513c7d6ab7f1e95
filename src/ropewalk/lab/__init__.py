"""The laboratory: corpora, training, decoding, scores and comparison."""
