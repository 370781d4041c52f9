"""What can be known of a fitted field from tables alone, checked with records."""

from evidence.subject import Subject

SUBJECT = Subject(
    name="tables_only",
    page="tables-only",
    text="""
# Nothing but tables

What can be known of a fitted field without a single record: its score, its settings, where it cannot be
trusted, and how sure its predictions are. Records are used here only to check. `make tables-only` runs
what has not been run yet, and writes this page and its figures from what is stored.
""",
    modules=("score", "choice", "extra_tables", "intervals"),
)
