"""Features of very many values: what they cost, and what they are worth."""

from evidence.subject import Subject

SUBJECT = Subject(
    name="cardinality",
    page="cardinality",
    text="""
# Features of many values

A table lists the cells that were seen, where those are at most a third of all there could be, and all others
share one weight ([method](method.md#sparse-tables)). This page measures what that costs and what it is worth;
each section says what it is to hold. Two threads, everything by default unless it is said. Times are of the
machine that the section names, with nothing else running on it: `python -m evidence cardinality` writes this
page.
""",
    modules=("flights", "log", "zipf", "growth", "shape", "index"),
)
