"""Scores of answers, and tests whether their differences could be chance."""
