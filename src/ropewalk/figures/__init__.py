"""Figures from plain data: matplotlib's where they stand still, plotly's where they move."""
