"""How good predictions are on records, and beside what."""
