"""How a raw value becomes a code."""
