"""Fitting a field to its tables."""
