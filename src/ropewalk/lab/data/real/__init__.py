"""Real text: where it comes from, by which digest it is known, how it is read and split."""
