"""Collections of tables: the only thing a model is ever fitted on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from agglearn.errors import InputError, TableError
from agglearn.runtime.display import clip, counted, html_table
from agglearn.runtime.speech import option
from agglearn.schema.growth import common_schema, new_values, positions, same_codes
from agglearn.schema.schema import Schema, some
from agglearn.tables.cells import Cells
from agglearn.tables.ledger import Part, added, fingerprint, taken_out
from agglearn.tables.promise import Promise
from agglearn.tables.scopes import shape_of
from agglearn.tables.table import Scope, Table

ABSENT = ("zero", "suppressed", "unmeasured")

_LISTED = 10  # tables that a collection shows of itself in a notebook


@dataclass(frozen=True, eq=False, repr=False)
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
    parts
        The parts that these tables were added up from; see :attr:`ledger`.
    promise
        What is promised to the people behind private tables, and what it cost; None where nothing is.
    denoised
        Whether what is likely to be noise was taken out of noisy tables. What is left of it no table tells.
    """

    schema: Schema
    tables: Mapping[Scope, Table]
    rows: float
    positives: tuple[float, ...]
    absent: str = "zero"
    floor: float | None = None
    split: Mapping[str, Any] | None = None
    parts: tuple[Part, ...] = ()
    promise: Promise | None = None
    denoised: bool = False

    def __post_init__(self) -> None:
        if self._is_sum and all(part.plain for part in self.parts) and not self._plain:
            # What was put on a sum later is on none of its parts, whose exact numbers are nobody's business.
            object.__setattr__(self, "parts", ())
        if self.absent not in ABSENT:
            raise InputError(f"absent={self.absent!r} is not one of {', '.join(ABSENT)}")
        for scope, table in self.tables.items():
            if scope != table.features or not table.cells.fits(shape_of(scope, self.schema)):
                raise TableError(f"table {table.title} does not have the shape of its features")
            if len(table.sums) != len(self.schema.labels):
                raise TableError(f"table {table.title} does not have a sum for each label")

    def __repr__(self) -> str:
        return f"<AggregatedData: {self.summary}>"

    def _repr_html_(self) -> str:
        rows = [[t.title, ", ".join(t.summary)] for t in list(self.tables.values())[:_LISTED]]
        return html_table(self.summary, ["table", "holds"], rows, max(0, len(self.tables) - _LISTED))

    @property
    def summary(self) -> str:
        """Sizes, and what else is to be known of the numbers, on one line."""
        positives = zip(self.positives, self.schema.label_names, strict=False)
        shares = clip(", ".join(f"{n:,.0f} {name}" for n, name in positives), 40)
        size = f"{counted(len(self.tables), 'table')} of {counted(len(self.schema.features), 'feature')}"
        sizes = f"{counted(self.rows, 'record')} ({shares}) in {size}, {counted(self.n_cells, 'cell')}"
        return "; ".join([sizes, *self._caveats()])

    def _caveats(self) -> list[str]:
        """Noise, suppression, and the part of a split that this is."""
        noises = dict.fromkeys(str(t.noise) for t in self.tables.values() if t.noise)
        noise = [f"noise {clip(', '.join(noises), 60)}"] if noises else []
        floor = "" if self.floor is None else f" below {self.floor:g}"
        absent = [] if self.absent == "zero" else [f"absent cells are {self.absent}{floor}"]
        part = [] if self.split is None else [f"part {self.split.get('part')!r} of a split"]
        promise = [] if self.promise is None else [str(self.promise)]
        taken_out = ["noise was taken out"] if self.denoised else []
        return [*noise, *taken_out, *absent, *part, *promise]

    @property
    def n_cells(self) -> int:
        return sum(t.n_cells for t in self.tables.values())

    @property
    def cells(self) -> dict[Scope, Cells]:
        """The cells of each table, by its features."""
        return {scope: table.cells for scope, table in self.tables.items()}

    @property
    def ledger(self) -> tuple[Part, ...]:
        """The parts that these tables were added up from; tables of one aggregation are their own."""
        if self._is_sum:
            return self.parts
        alone = self.parts[0] if self.parts else Part()
        return (replace(alone, rows=self.rows, fingerprint=self._fingerprint, plain=self._plain),)

    @property
    def _is_sum(self) -> bool:
        return any(part.fingerprint for part in self.parts)

    @property
    def _plain(self) -> bool:
        return self.floor is None and all(
            t.noise is None and t.measured is None for t in self.tables.values()
        )

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.schema, self.tables.values(), (self.rows, *self.positives))

    def label_index(self, label: str | None = None) -> int:
        """Position of a label; with one label only, it need not be named."""
        names = self.schema.label_names
        if label is None:
            if len(names) == 1:
                return 0
            raise InputError(f"there are several labels ({some(names)}): choose one with {option('label')}")
        if label not in names:
            raise InputError(f"label {label!r} is not in these tables, which have {some(names)}")
        return names.index(label)

    def __add__(self, other: AggregatedData) -> AggregatedData:
        """Merge with the tables of other records; private tables with those of other people."""
        return self.merged(other)

    def merged(self, other: AggregatedData, same_people: bool = False) -> AggregatedData:
        """Merge with the tables of other records, which may be of the same people."""
        promise = self._promise_with(other, same_people)
        schema = common_schema(self.schema, other.schema)
        _require_same_tables(self, other)
        parts = added(self.ledger, (_with_new(part, self.schema, other.schema) for part in other.ledger))
        self, other = self.aligned(schema), other.aligned(schema)
        return replace(
            self,
            tables={scope: t + other.tables[scope] for scope, t in self.tables.items()},
            rows=self.rows + other.rows,
            positives=tuple(a + b for a, b in zip(self.positives, other.positives, strict=True)),
            split=None,
            promise=promise,
            denoised=self.denoised or other.denoised,
            parts=parts,
        )

    def __sub__(self, other: AggregatedData) -> AggregatedData:
        """Take parts out again that were added."""
        schema = common_schema(self.schema, other.schema)
        _require_same_tables(self, other)
        parts = taken_out(self.ledger, other.ledger)
        if not parts:
            raise TableError("all parts would be taken out: nothing would be left")
        other = other.aligned(schema)
        return replace(
            self,
            tables={scope: t - other.tables[scope] for scope, t in self.tables.items()},
            rows=self.rows - other.rows,
            positives=tuple(a - b for a, b in zip(self.positives, other.positives, strict=True)),
            parts=parts,
        )

    def __mul__(self, weight: float) -> AggregatedData:
        """The tables with each record counting so much."""
        return replace(
            self,
            tables={scope: table * weight for scope, table in self.tables.items()},
            rows=self.rows * weight,
            positives=tuple(p * weight for p in self.positives),
            parts=tuple(replace(part, weight=part.weight * weight) for part in self.ledger),
        )

    def aligned(self, schema: Schema) -> AggregatedData:
        """The same tables over a schema that grew from theirs."""
        if schema == self.schema:
            return self
        tables = {scope: self._moved(table, schema) for scope, table in self.tables.items()}
        return replace(self, schema=schema, tables=tables)

    def _moved(self, table: Table, schema: Schema) -> Table:
        if table.cells.apart:
            places = [positions(self.schema.feature(n), schema.feature(n)) for n in table.features]
            return table.moved(places, shape_of(table.features, schema))
        if same_codes(self.schema, schema, table.features):
            return table
        raise TableError(
            f"table {table.title} is hashed, and new values moved its codes: aggregate both with one schema"
        )

    def _promise_with(self, other: AggregatedData, same_people: bool) -> Promise | None:
        """What is promised for both together."""
        mine, theirs = self.promise, other.promise
        if mine is None and theirs is None:
            return None
        if mine is None or theirs is None:
            raise TableError(
                "private tables and tables that promise nothing cannot be merged: whoever has the private "
                "ones would know the others exactly"
            )
        if mine.source and mine.source == theirs.source and (self.split or {}) == (other.split or {}):
            raise TableError(
                "two releases of the same records cannot be merged: every record would be counted twice"
            )
        return mine.beside(theirs, same_people)

    def __radd__(self, other: object) -> AggregatedData:
        """Let ``sum(parts)`` work."""
        return self if other == 0 else NotImplemented

    def table(self, *features: str) -> Table:
        """The table over these features: as held, or summed from the smallest that holds them."""
        for name in features:
            self.schema.feature(name)
        wanted = set(features)
        holding = [
            t
            for t in self.tables.values()
            if wanted <= set(t.features) and (t.cells.apart or wanted == set(t.features))
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


def _with_new(part: Part, before: Schema, schema: Schema) -> Part:
    """The part, saying which modalities came with it."""
    return replace(part, new={**new_values(before, schema), **part.new})


def _require_same_tables(a: AggregatedData, b: AggregatedData) -> None:
    if set(a.tables) != set(b.tables):
        odd = sorted(set(a.tables) ^ set(b.tables))[0]
        raise TableError(
            f"table {' × '.join(odd)} is in one of the aggregations only: aggregate one with "
            f"{option('schema', 'OTHER.agg')}, which has the same tables"
        )
    if (a.absent, a.floor) != (b.absent, b.floor):
        raise TableError("two aggregations with different suppression cannot be merged")


def _same(a: Table, b: Table) -> bool:
    def same(x: Any, y: Any) -> bool:
        return (x is None) == (y is None) and (x is None or np.array_equal(x, y))

    if a.cells != b.cells:  # the same numbers may stand in cells of either kind
        a, b = a.compact(), b.compact()
    return (
        (a.cells, a.noise) == (b.cells, b.noise)
        and same(a.counts, b.counts)
        and same(a.sums, b.sums)
        and same(a.unknown, b.unknown)
        and same(a.measured, b.measured)
        and same(a.variances, b.variances)
    )


def merge(parts: Iterable[AggregatedData], *, same_people: bool = False) -> AggregatedData:
    """Add up the aggregations of disjoint records.

    What private tables promise is that of the weakest part where the parts are of different people; where
    ``same_people`` may be in several of them, what each can tell adds up.
    """
    return reduce(lambda a, b: a.merged(b, same_people), parts)
