"""Features and schemas written by hand, where records may not be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agglearn.errors import SchemaError
from agglearn.schema.features import Binned, Categorical, Feature, as_written
from agglearn.schema.rules import Cut
from agglearn.schema.schema import Label, Schema
from agglearn.schema.values import of_one_kind


def categorical(
    name: str, values: Iterable[object], *, other: bool = False, missing: bool = False
) -> Categorical:
    """A feature of categories.

    Parameters
    ----------
    name
        The column.
    values
        Its values: texts, numbers or answers.
    other
        Whether all other values share one modality; without it they are unknown.
    missing
        Whether a missing value has a modality of its own.

    Examples
    --------
    >>> import agglearn
    >>> agglearn.categorical("size", [1, 2, 3]).modalities
    ('1', '2', '3')
    """
    try:
        texts = [as_written(value, f"a value of {name!r}") for value in values]
    except ValueError as error:
        raise SchemaError(f"feature {name!r}: {error}") from None
    found = of_one_kind(texts)
    written, value_type = found if found is not None else (texts, "string")
    if len(set(written)) < len(written):
        raise SchemaError(f"feature {name!r} lists one of its values twice")
    if not written and not other:
        raise SchemaError(f"feature {name!r} has no value")
    return Categorical(name, missing, tuple(written), value_type, other)


def numeric(
    name: str,
    edges: Sequence[float],
    *,
    low: float | None = None,
    high: float | None = None,
    integer: bool = False,
    missing: bool = False,
) -> Binned:
    """A feature of numbers, cut at edges.

    Parameters
    ----------
    name
        The column.
    edges
        Where it is cut; the outer two bins are open-ended.
    low, high
        The range of the values, from which samples of the outer bins are drawn; the outer edges by default.
    integer
        Whether the values are whole numbers.
    missing
        Whether a missing value has a modality of its own.

    Examples
    --------
    >>> import agglearn
    >>> agglearn.numeric("age", [30, 60]).modalities
    ('< 30', '[30, 60)', '≥ 60')
    """
    cuts = tuple(Cut(float(edge)) for edge in edges)
    first, last = (cuts[0].value, cuts[-1].value) if cuts else (0.0, 0.0)
    return Binned(
        name,
        missing,
        cuts,
        first if low is None else float(low),
        last if high is None else float(high),
        integer,
    )


def make_schema(features: Iterable[Feature], label: str, positive: object = None) -> Schema:
    """A schema of these features and one label.

    Examples
    --------
    >>> import agglearn
    >>> schema = agglearn.make_schema([agglearn.categorical("size", ["S", "L"])], "click")
    >>> schema.cards
    (2,)
    """
    written = None if positive is None else as_written(positive, "the positive value")
    return Schema(tuple(features), (Label(label, written),))
