"""Cells of a run at work: one cell, and many of them here, on Slurm, on Ray or under torchrun."""
