"""Tools that find out what a rope does: each is a function that returns plain data, and a command."""
