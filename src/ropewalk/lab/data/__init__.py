"""Data of the tasks: corpora that are read or generated, running texts, generated sequences."""
