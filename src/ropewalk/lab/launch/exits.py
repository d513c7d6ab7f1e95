"""Exit statuses of a cell's process that a launcher understands."""

#: Stopped by a signal, after saving. Another process works on the cell.
INTERRUPTED, BUSY = 130, 75
