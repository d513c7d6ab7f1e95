"""Exit statuses of a cell's process that a launcher understands."""

INTERRUPTED = 130  # stopped by a signal after saving, or lost; the cell may start again
BUSY = 75  # another process works on the cell
