"""A fitted field as a value, and what it can do."""
