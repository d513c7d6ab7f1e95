"""Scores of answers, and whether their differences could be chance."""
