"""Penalties chosen on held-out tables."""
