"""Trials that try to break agglearn (see __main__ of evidence)."""
