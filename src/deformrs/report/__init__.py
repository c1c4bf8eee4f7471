"""Figures and tables from certificates."""
