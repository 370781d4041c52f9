"""Tables and collections of them: the only thing a model is ever fitted on.

A :class:`Table` counts records (``counts``, the *d* of the mathematics) and positives (``sums``, the
*c*, one layer per label) over every combination of its features' modalities, or over the buckets those
combinations are hashed to. Records with an unknown value in one of the features have no cell; they are
kept in ``unknown``, so that every table of one data set accounts for every record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError, SchemaError, TableError
from agglearn.schema import Schema, some

Array: TypeAlias = npt.NDArray[Any]  # int64 where exact, float64 where noisy
Scope: TypeAlias = tuple[str, ...]

NOISE_LAWS = ("gaussian", "laplace", "rounding")
ABSENT = ("zero", "suppressed", "unmeasured")


@dataclass(frozen=True)
class Noise:
    """The noise that was added to each number of a table.

    ``scale`` is the standard deviation of a Gaussian, the scale b of a Laplace law, or the largest
    error of a rounding.
    """

    law: str
    scale: float

    def __post_init__(self) -> None:
        if self.law not in NOISE_LAWS or not (np.isfinite(self.scale) and self.scale > 0):
            raise InputError(
                f"noise {self.law}:{self.scale:g} is not one of {', '.join(NOISE_LAWS)} with a scale "
                "above 0, such as gaussian:17"
            )

    @classmethod
    def parse(cls, text: str) -> Noise:
        """Read ``LAW:SCALE``, for instance ``gaussian:17``."""
        law, _, scale = text.partition(":")
        try:
            return cls(law, float(scale))
        except ValueError:
            raise InputError(f"noise {text!r} is not LAW:SCALE, such as gaussian:17") from None

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise."""
        factor = {"gaussian": 1.0, "laplace": np.sqrt(2.0), "rounding": 1 / np.sqrt(3.0)}
        return float(self.scale * factor[self.law])

    def __str__(self) -> str:
        return f"{self.law}:{self.scale:g}"


@dataclass(frozen=True, eq=False)
class Table:
    """Counts over one set of features.

    Attributes
    ----------
    features
        Names of the features, in the order of the axes.
    counts
        Records in each cell: one axis per feature, or one axis of buckets where hashed. Integers where
        exact, floats where noisy.
    sums
        Positives in each cell, with a leading axis over the labels.
    unknown
        Records that fell into no cell, then the positives among them for each label.
    hashed
        Whether the cells are buckets.
    noise
        The law of the noise on each number, if any.
    measured
        Which cells were measured at all; None where all were.
    """

    features: Scope
    counts: Array
    sums: Array
    unknown: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    hashed: bool = False
    noise: Noise | None = None
    measured: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if self.sums.shape[1:] != self.counts.shape:
            raise TableError(f"table {self.title}: counts and sums differ in shape")
        if not len(self.unknown):
            object.__setattr__(self, "unknown", np.zeros(1 + len(self.sums), self.counts.dtype))

    @property
    def title(self) -> str:
        """The table's name in messages."""
        return " × ".join(self.features)

    @property
    def total(self) -> float:
        """Records counted, in a cell or as unknown."""
        return float(self.counts.sum() + self.unknown[0])

    @property
    def n_cells(self) -> int:
        return int(self.counts.size)

    @property
    def exact(self) -> bool:
        """Whether the numbers are plain counts, with no noise on them."""
        return self.noise is None and bool(np.issubdtype(self.counts.dtype, np.integer))

    def __add__(self, other: Table) -> Table:
        if self.features != other.features or self.counts.shape != other.counts.shape:
            raise TableError(f"tables {self.title} and {other.title} cannot be added: they differ in shape")
        noise = _noise_of_sum(self, other)
        measured = _both(self.measured, other.measured)
        return replace(
            self,
            counts=self.counts + other.counts,
            sums=self.sums + other.sums,
            unknown=self.unknown + other.unknown,
            noise=noise,
            measured=measured,
        )

    def marginalise(self, features: Sequence[str]) -> Table:
        """The table over some of its features only, in their old order."""
        kept = [i for i, name in enumerate(self.features) if name in set(features)]
        if len(kept) != len(set(features)) or not kept:
            raise TableError(f"table {self.title} does not hold all of {some(list(features))}")
        if len(kept) == len(self.features):
            return self
        if self.hashed:
            raise TableError(f"table {self.title} is hashed: its features cannot be told apart")
        if self.measured is not None:
            raise TableError(f"table {self.title} lacks cells: its margins cannot be summed")
        if self.noise is not None:
            raise TableError(f"table {self.title} is noisy: sum its counts yourself, and the noise with them")
        gone = tuple(i for i in range(len(self.features)) if i not in kept)
        return replace(
            self,
            features=tuple(self.features[i] for i in kept),
            counts=self.counts.sum(axis=gone),
            sums=self.sums.sum(axis=tuple(i + 1 for i in gone)),
        )


def _both(a: npt.NDArray[np.bool_] | None, b: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _noise_of_sum(a: Table, b: Table) -> Noise | None:
    if a.noise is None or b.noise is None:
        return b.noise if a.noise is None else a.noise
    if a.noise.law != b.noise.law or a.noise.law != "gaussian":
        raise TableError(
            f"tables {a.title} with noise {a.noise} and {b.noise} cannot be added: only Gaussian noises "
            "add up to a known law"
        )
    return Noise("gaussian", float(np.hypot(a.noise.scale, b.noise.scale)))


@dataclass(frozen=True, eq=False)
class AggregatedData:
    """Tables over one schema, from one set of records.

    Attributes
    ----------
    schema
        Features and labels.
    tables
        The tables by their features.
    rows
        How many records were aggregated.
    positives
        How many of them were positive, for each label.
    absent
        What a cell that was not given means: ``zero``, ``suppressed`` (below ``floor``) or
        ``unmeasured``.
    floor
        The count below which a cell was withheld, if any.
    split
        Which part of a split this is, for instance ``{"part": "valid", "seed": 0, …}``.
    """

    schema: Schema
    tables: Mapping[Scope, Table]
    rows: float
    positives: tuple[float, ...]
    absent: str = "zero"
    floor: float | None = None
    split: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.absent not in ABSENT:
            raise InputError(f"absent={self.absent!r} is not one of {', '.join(ABSENT)}")
        for scope, table in self.tables.items():
            shape = tuple(self.schema.feature(name).n_modalities for name in scope)
            if scope != table.features or (not table.hashed and table.counts.shape != shape):
                raise TableError(f"table {table.title} does not have the shape of its features")
            if len(table.sums) != len(self.schema.labels):
                raise TableError(f"table {table.title} does not have a sum for each label")

    @property
    def n_cells(self) -> int:
        return sum(t.n_cells for t in self.tables.values())

    def label_index(self, label: str | None = None) -> int:
        """Position of a label; with one label only, it need not be named."""
        names = self.schema.label_names
        if label is None:
            if len(names) == 1:
                return 0
            raise InputError(f"there are several labels ({some(names)}): choose one with --label")
        if label not in names:
            raise InputError(f"label {label!r} is not in these tables, which have {some(names)}")
        return names.index(label)

    def __add__(self, other: AggregatedData) -> AggregatedData:
        """Merge with the tables of other records."""
        if self.schema != other.schema:
            raise SchemaError(
                "two aggregations with different schemas cannot be merged: aggregate the second with "
                "the first one's schema (--schema FIRST.agg)"
            )
        if set(self.tables) != set(other.tables):
            odd = sorted(set(self.tables) ^ set(other.tables))[0]
            raise TableError(f"table {' × '.join(odd)} is in one of the aggregations only")
        if (self.absent, self.floor) != (other.absent, other.floor):
            raise TableError("two aggregations with different suppression cannot be merged")
        return replace(
            self,
            tables={scope: t + other.tables[scope] for scope, t in self.tables.items()},
            rows=self.rows + other.rows,
            positives=tuple(a + b for a, b in zip(self.positives, other.positives, strict=True)),
            split=None,
        )

    def __radd__(self, other: object) -> AggregatedData:
        """Let ``sum(parts)`` work."""
        return self if other == 0 else NotImplemented

    def noise_of(self, scopes: Iterable[Scope]) -> npt.NDArray[np.float64]:
        """Standard deviation of the noise declared for each of these tables, 0 where there is none."""
        noises = [self.tables[scope].noise for scope in scopes]
        return np.array([noise.sigma if noise else 0.0 for noise in noises])

    def table(self, *features: str) -> Table:
        """The table over these features: as held, or summed from the smallest that holds them."""
        for name in features:
            self.schema.feature(name)
        wanted = set(features)
        holding = [
            t
            for t in self.tables.values()
            if wanted <= set(t.features) and (not t.hashed or wanted == set(t.features))
        ]
        if not holding:
            raise TableError(f"no table holds {' × '.join(features)}")
        return min(holding, key=lambda t: t.n_cells).marginalise(features)

    def select(
        self, *, features: Sequence[str] | None = None, tables: Iterable[Sequence[str]] | None = None
    ) -> AggregatedData:
        """Keep some features (and the tables within them), or some tables."""
        scopes = list(self.tables)
        schema = self.schema
        if features is not None:
            schema = schema.select(features)
            scopes = [s for s in scopes if set(s) <= set(schema.names)]
        if tables is not None:
            wanted = [self._scope(names) for names in tables]
            scopes = [s for s in scopes if s in wanted]
        if not scopes:
            raise InputError("no table is left")
        return replace(self, schema=schema, tables={s: self.tables[s] for s in scopes})

    def _scope(self, names: Sequence[str]) -> Scope:
        scope = tuple(sorted(names, key=lambda n: self.schema.index.get(n, -1)))
        if scope not in self.tables:
            raise TableError(f"there is no table {' × '.join(names)}")
        return scope

    def equals(self, other: AggregatedData) -> bool:
        """Whether both hold the same numbers over the same schema."""
        return (
            self.schema == other.schema
            and (self.rows, self.positives) == (other.rows, other.positives)
            and (self.absent, self.floor) == (other.absent, other.floor)
            and self.tables.keys() == other.tables.keys()
            and all(_same(t, other.tables[s]) for s, t in self.tables.items())
        )


def _same(a: Table, b: Table) -> bool:
    def same(x: Any, y: Any) -> bool:
        return (x is None) == (y is None) and (x is None or np.array_equal(x, y))

    return (
        (a.hashed, a.noise) == (b.hashed, b.noise)
        and same(a.counts, b.counts)
        and same(a.sums, b.sums)
        and same(a.unknown, b.unknown)
        and same(a.measured, b.measured)
    )


def merge(parts: Iterable[AggregatedData]) -> AggregatedData:
    """Add up the aggregations of disjoint records."""
    return reduce(lambda a, b: a + b, parts)


def parse_scopes(spec: str | Iterable[Sequence[str]], schema: Schema) -> list[Scope]:
    """The tables that a specification asks for, as tuples of features in schema order.

    ``singles``, ``pairs``, ``triples`` and ``a*b*c`` can be joined by commas.
    """
    from itertools import combinations

    orders = {"singles": 1, "pairs": 2, "triples": 3}
    terms: list[str | Sequence[str]] = list(spec.split(",")) if isinstance(spec, str) else list(spec)
    scopes: dict[Scope, None] = {}
    for term in terms:
        word = term.strip() if isinstance(term, str) else ""
        if word in orders:
            # A single feature has no pair: its own table is all there can be.
            order = min(orders[word], len(schema.names))
            found: Iterable[Scope] = combinations(schema.names, order)
        else:
            names = word.split("*") if isinstance(term, str) else list(term)
            names = [n.strip() if isinstance(term, str) else n for n in names]
            for name in names:
                schema.feature(name)
            if len(set(names)) != len(names) or not names:
                raise InputError(f"table {'*'.join(names)!r} names a feature twice, or none")
            found = [tuple(sorted(names, key=schema.index.__getitem__))]
        scopes.update(dict.fromkeys(found))
    if not scopes:
        raise InputError("no table is asked for")
    return list(scopes)


def shape_of(scope: Scope, schema: Schema) -> tuple[int, ...]:
    """Modalities along each axis of a table."""
    return tuple(schema.feature(name).n_modalities for name in scope)


def cells_of(scope: Scope, schema: Schema) -> int:
    """Cells of a table that is not hashed."""
    return prod(shape_of(scope, schema))
