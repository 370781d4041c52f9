"""Whose privacy: at most so many records of each person.

What a person adds to tables is bounded by leaving out records beyond ``max_records``. Which ones is up to a
hash with a key that is drawn for the run and forgotten: not the first ones, which an order would tell, and
none of it depends on anyone else's records, so that taking a person away changes no other one's.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.errors import InputError
from agglearn.records.sources import Source
from agglearn.runtime.memory import require
from agglearn.runtime.progress import meter
from agglearn.runtime.random import scrambled
from agglearn.schema.columns import as_text, distinct
from agglearn.schema.schema import require_columns

Hashes = npt.NDArray[np.uint64]

_BYTES_A_RECORD = 40  # hashes, orders and ranks while records are chosen


@dataclass(frozen=True)
class BoundedSource:
    """Records of a source, without those beyond a person's most; and without the column that names persons.

    Attributes
    ----------
    source
        All records.
    person
        The column that says whose a record is.
    kept
        Which records stay.
    """

    source: Source
    person: str
    kept: npt.NDArray[np.bool_]

    @property
    def columns(self) -> list[str]:
        return [name for name in self.source.columns if name != self.person]

    @property
    def rows(self) -> int | None:
        return int(self.kept.sum())

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches with these columns."""
        start = 0
        for batch in self.source.batches(columns):
            kept = self.kept[start : start + batch.num_rows]
            start += batch.num_rows
            yield batch if kept.all() else batch.filter(pa.array(kept))


def bounded(
    source: Source, person: str, max_records: int, *, key: bytes | None = None, show_progress: bool = False
) -> BoundedSource:
    """The source with at most ``max_records`` of each person; ``key`` is drawn unless a test gives one."""
    require_columns([person], source.columns, "person column")
    key = secrets.token_bytes(32) if key is None else key
    if source.rows is not None:
        require(_BYTES_A_RECORD * source.rows, "choosing records by person", "bound them beforehand")
    hashes = []
    with meter("reading persons", source.rows, show=show_progress) as advance:
        for batch in source.batches([person]):
            hashes.append(_persons(batch.column(person), person, key))
            advance(batch.num_rows)
    if not hashes:
        raise InputError("there are no records to aggregate")
    return BoundedSource(source, person, chosen(np.concatenate(hashes), max_records))


def _persons(column: Any, name: str, key: bytes) -> Hashes:
    """A keyed hash of whose each record is. Two persons that share one only lose more records."""
    values, index = distinct(column)
    if (index < 0).any():
        raise InputError(
            f"person column {name!r} is missing in record {int(np.argmax(index < 0)) + 1} of the batch read: "
            "every record must be someone's"
        )
    digests = [hashlib.blake2b(text.encode(), digest_size=8, key=key) for text in as_text(values).to_pylist()]
    found = np.array([int.from_bytes(d.digest(), "little") for d in digests], np.uint64)
    return found[index]


def chosen(persons: Hashes, max_records: int) -> npt.NDArray[np.bool_]:
    """Which records stay, by the hashes of whose they are."""
    order = np.argsort(persons, kind="stable")
    ordinal = _places(persons[order])  # the how-manieth of its person, in the order of the records
    # The hash of a person is keyed, so nobody can foretell which of its records come first here.
    lots = scrambled(persons[order] + ordinal.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    drawn = np.lexsort([lots, persons[order]])
    places = _places(persons[order][drawn])
    kept = np.zeros(len(persons), bool)
    kept[order[drawn[places < max_records]]] = True
    return kept


def _places(grouped: Hashes) -> npt.NDArray[np.int64]:
    """0, 1, 2, … within each run of equal values."""
    starts = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1]))
    lengths = np.diff(np.append(starts, len(grouped)))
    return np.arange(len(grouped)) - np.repeat(starts, lengths)
