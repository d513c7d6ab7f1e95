"""Models and texts that a command reads from files: what several tools share."""
