"""Exact tables → tables that may leave: noise, what it promises, and what has been spent."""
