"""Learn a classifier from contingency tables alone."""

__version__ = "0.1.0"
