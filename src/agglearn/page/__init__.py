"""The report: one page about one model, for whoever decides about it."""
