"""Values that a schema has no modality for: how many records have one, and when that is nearly all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agglearn.report.document import Note

NEARLY_ALL = 0.9
"""With so many records of unknown value, a feature is another column, or written in another way."""

CAUSE = "unknown values"


def unknown_notes(unknown: Mapping[str, float], rows: float, therefore: str) -> Iterator[Note]:
    """What there is to say of unknown values.

    Parameters
    ----------
    unknown
        How many of the records have an unknown value, by feature.
    rows
        How many records there are.
    therefore
        What an unknown value does.
    """
    for name, n in unknown.items():
        if n and n >= NEARLY_ALL * rows:
            yield Note(nearly_all(name, n, rows, therefore), "problem", CAUSE)
        elif n:
            yield Note(
                f"{n:,.0f} of {rows:,.0f} records have a value of {name} that the schema does not know, "
                f"which {therefore}",
                "warning",
                CAUSE,
            )


def nearly_all(name: str, n: float, rows: float, therefore: str) -> str:
    """What to say where hardly any value of a feature is known."""
    share = "all" if n >= rows else f"{n:,.0f} of"
    return (
        f"{share} {rows:,.0f} records have a value of {name} that the schema does not know, which "
        f"{therefore}: is this the same column, and are its values written as the schema has them?"
    )
