"""What tasks are made of: corpora read or written here, texts, generated sequences."""
