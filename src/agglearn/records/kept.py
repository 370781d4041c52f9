"""Records of files that are read twice: kept from the first time on, where they are few enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agglearn.records.sources import Source
from agglearn.runtime.memory import limit

_SHARE, _MOST = 8, 1 << 28  # of the memory that one request may take, and bytes at most


@dataclass
class KeptSource:
    """A source whose batches stay in memory once all have been read, if they take little of it."""

    source: Source
    _kept: list[Any] | None = field(init=False, default=None)

    @property
    def columns(self) -> list[str]:
        return self.source.columns

    @property
    def rows(self) -> int | None:
        return self.source.rows

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        if self._kept is not None and (not self._kept or {*columns} <= {*self._kept[0].schema.names}):
            for batch in self._kept:
                yield batch.select(list(columns))  # with what tells where its records stand
            return
        room = min(limit() // _SHARE, _MOST)
        kept: list[Any] | None = []
        for batch in self.source.batches(columns):
            room -= batch.nbytes
            kept = None if kept is None or room < 0 else [*kept, batch]
            yield batch
        self._kept = kept
