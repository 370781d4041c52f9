"""Run the experiments on tables alone: ``python -m evidence.tables_only [--quick] [SUBJECT...]``."""

from evidence.__main__ import main

SUBJECTS = ("score", "choice", "extra_tables", "intervals")
OPENING = """
# Nothing but tables

What can be known of a fitted field without a single record: its score, its settings, where it cannot be
trusted, and how sure its predictions are. Records are used here only to check. `make tables-only` runs
what has not been run yet, and writes this page and its figures from what is stored.
"""

if __name__ == "__main__":
    main("tables_only", SUBJECTS, "tables-only", OPENING)
