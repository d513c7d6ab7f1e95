"""A trained model in the format of another engine, so that the engine serves it."""
