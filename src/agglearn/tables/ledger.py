"""What tables were added up from.

Tables of one aggregation are one part. Their sum knows the parts it was added up from, so that none is added
twice and any can be taken out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.errors import TableError
from agglearn.report.document import Column, Grid, number
from agglearn.runtime.speech import option
from agglearn.schema.features import Feature
from agglearn.schema.schema import Schema
from agglearn.tables.periods import Period
from agglearn.tables.table import Table


@dataclass(frozen=True)
class Part:
    """One aggregation within a sum.

    Attributes
    ----------
    name
        What it is called, after the folder it was first written to.
    period
        When its records are from.
    rows
        How many they are.
    fingerprint
        A checksum of its tables, by which it is known; empty as long as it stands alone, when its tables
        themselves are at hand.
    plain
        Whether its numbers were exact and whole, with no noise on them and no cell withheld.
    weight
        How much each of its records counts in the sum.
    new
        Modalities that came with it: the parts before have no cell for them.
    """

    name: str = ""
    period: Period | None = None
    rows: float = 0.0
    fingerprint: str = ""
    plain: bool = True
    weight: float = 1.0
    new: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its name in messages."""
        return repr(self.name or (str(self.period) if self.period else "(unnamed)"))

    @property
    def when(self) -> Period | None:
        """Its period: as told, or as its name tells."""
        return self.period or Period.named(self.name)

    def is_same(self, other: Part) -> bool:
        """Whether both are of the same records; equal numbers of different periods are two parts."""
        apart = self.period is not None and other.period is not None and self.period != other.period
        return bool(self.fingerprint) and self.fingerprint == other.fingerprint and not apart

    def to_json(self) -> dict[str, Any]:
        """The part as plain JSON values."""
        return {
            "name": self.name,
            "period": None if self.period is None else str(self.period),
            "records": self.rows,
            "fingerprint": self.fingerprint,
            "plain": self.plain,
            "weight": self.weight,
            "new": {name: list(values) for name, values in self.new.items()},
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Part:
        """The part that :meth:`to_json` gave."""
        period = document["period"]
        return cls(
            name=str(document["name"]),
            period=None if period is None else Period.parse(period),
            rows=float(document["records"]),
            fingerprint=str(document["fingerprint"]),
            plain=bool(document["plain"]),
            weight=float(document["weight"]),
            new={name: tuple(map(str, values)) for name, values in document["new"].items()},
        )


def added(first: Iterable[Part], second: Iterable[Part]) -> tuple[Part, ...]:
    """The parts of a sum, or which of them would be counted twice."""
    parts = tuple(first)
    for part in second:
        for before in parts:
            if part.is_same(before):
                raise TableError(
                    f"part {part.title} is in the sum already, as {before.title}: every record must be "
                    f"counted once (records of two days that look alike are told apart by {option('period')})"
                )
        parts += (part,)
    return parts


def taken_out(whole: Iterable[Part], gone: Iterable[Part]) -> tuple[Part, ...]:
    """The parts that are left, or which of those to take out was never added."""
    left = list(whole)
    for part in gone:
        found = [p for p in left if p.is_same(part)]
        if not found:
            raise TableError(f"part {part.title} was never added to these tables, so it cannot be taken out")
        if found[0].weight != 1.0:
            raise TableError(
                f"part {part.title} counts {found[0].weight:.3g} times in a window that fades: make the "
                "window again without it"
            )
        left.remove(found[0])
    return tuple(left)


def ledger_grid(parts: Iterable[Part]) -> Grid:
    """The parts, for a person to read."""
    columns = (
        Column("part"),
        Column("period"),
        number("records", ",.0f"),
        number("weight", ".3g"),
        Column("new"),
    )
    return Grid(
        columns,
        tuple(
            (p.name, None if p.when is None else str(p.when), p.rows, p.weight, _brought(p)) for p in parts
        ),
        caption="added up from:",
    )


def _brought(part: Part) -> str | None:
    shown = [f"{name}: {', '.join(values)}" for name, values in part.new.items()]
    return "; ".join(shown) or None


def fingerprint(schema: Schema, tables: Iterable[Table], totals: Iterable[float]) -> str:
    """A checksum of tables that stays the same as their vocabularies grow."""
    digest = sha256(repr([float(n) for n in totals]).encode())
    for piece in _pieces(schema, tables):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(schema: Schema, tables: Iterable[Table]) -> Iterator[bytes]:
    for table in sorted(tables, key=lambda t: t.features):
        yield repr((table.features, table.cells.buckets)).encode()
        counted = (table.counts != 0) | (table.sums != 0).any(axis=0)
        if table.measured is not None:
            counted = counted | table.measured
        cells = np.flatnonzero(counted.reshape(-1))
        if table.cells.apart:
            for name, codes in zip(table.features, table.cells.all_codes(cells), strict=True):
                yield _lasting(schema.feature(name))[codes].tobytes()
        else:
            yield cells.tobytes()
        for numbers in (table.counts, *table.sums):
            yield numbers.reshape(-1)[cells].astype(np.float64).tobytes()
        yield table.unknown.astype(np.float64).tobytes()


def _lasting(feature: Feature) -> npt.NDArray[np.uint64]:
    """A number for each modality that does not change as others come: of its text, not of its code."""
    digests = b"".join(sha256(text.encode()).digest()[:8] for text in feature.modalities)
    return np.frombuffer(digests, np.uint64)
