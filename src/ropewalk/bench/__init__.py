"""Time of a rotation and of models here: `ropewalk bench`, and the clock of `benchmarks/`."""
