"""Starts the cells of a run, here or on a cluster; the run's folder says what is done."""
