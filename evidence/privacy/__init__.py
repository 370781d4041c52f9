"""Private tables: what they promise, what they cost, and what can be learnt from them."""

from evidence.subject import Subject

SUBJECT = Subject(
    name="privacy",
    page="privacy",
    text="""
# Private tables

What can be learnt from private tables and how sure a prediction is, whether the noise on released numbers has
the law it says, and what drawing it takes.
`python -m evidence privacy` runs what has not been run yet, and writes this page from what is stored.
""",
    modules=("learning", "rivals", "synthetic", "challenge", "intervals", "law", "audit", "cost"),
)
