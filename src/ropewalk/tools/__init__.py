"""Tools that find out what a rope does. Each is a function that returns plain data."""
