"""Real texts: where they come from, their digests, how they are read and split."""
