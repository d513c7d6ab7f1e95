"""The mathematics of rotary position embeddings; needs only torch and the standard library."""
