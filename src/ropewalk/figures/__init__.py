"""Figures from plain data: static ones with matplotlib, interactive ones with plotly."""
