"""Text for other people's databases."""
