"""Records to tables, a batch at a time: memory is bounded by the tables and a batch, never the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.aggregation.blocks import Block
from agglearn.aggregation.tally import Tally
from agglearn.aggregation.triples import Sample
from agglearn.errors import InputError
from agglearn.records.options import Split, TargetEncoding
from agglearn.records.passes import folded
from agglearn.records.sources import Source
from agglearn.records.split import Parts
from agglearn.runtime.fold import Key, Piece, Total
from agglearn.runtime.speech import option
from agglearn.schema.schema import Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Scope


class Counted:
    """What the second pass counts: a tally for each part of the split, and values without a modality.

    Attributes
    ----------
    tallies
        Of the parts, in their order.
    unknown
        For each feature, how many values it had no modality for.
    sample
        Of the records of the first part, where one was asked for.
    """

    def __init__(
        self, schema: Schema, scopes: list[Scope], hash_size: int | None, parts: int, sampled: bool = False
    ) -> None:
        self.tallies = [Tally(schema, scopes, hash_size, copies=parts) for _ in range(parts)]
        self.unknown = np.zeros(len(schema.features), np.int64)
        self.sample = Sample() if sampled else None
        self._schema = schema
        self._cards = np.array(schema.cards)[:, None]

    def add(self, batch: Any, part: npt.NDArray[np.uint8] | None) -> None:
        """Count a batch."""
        codes, labels = self._schema.encode(batch), self._schema.encode_labels(batch)
        self.unknown += (codes == self._cards).sum(axis=1)
        if self.sample is not None:
            self.sample.add(codes if part is None else codes[:, part == 0])
        if part is None:
            self.tallies[0].add(codes, labels)
            return
        for k, tally in enumerate(self.tallies):
            tally.add(np.ascontiguousarray(codes[:, part == k]), labels[:, part == k])

    def pieces(self) -> Iterator[tuple[Key, Piece]]:
        """The blocks of all tables, and the totals."""
        yield ("unknown",), Total(self.unknown)
        if self.sample is not None:
            yield ("sample",), self.sample
        for k, tally in enumerate(self.tallies):
            yield ("records", k), Total(np.array([tally.rows, *tally.positives]))
            for table, number, block in tally.blocks():
                yield ("block", k, table, number), block

    def take(self, pieces: Iterable[tuple[Key, Any]]) -> None:
        """Hold what others counted."""
        blocks: list[dict[tuple[int, int], Block]] = [{} for _ in self.tallies]
        totals = [np.zeros(1 + len(self._schema.labels), np.int64) for _ in self.tallies]
        for (what, *of), piece in pieces:
            if what == "unknown":
                self.unknown = piece.value
            elif what == "sample":
                self.sample = piece
            elif what == "records":
                totals[int(of[0])] = piece.value
            else:
                blocks[int(of[0])][int(of[1]), int(of[2])] = piece
        for tally, total, own in zip(self.tallies, totals, blocks, strict=True):
            tally.take(total, own)


def count_tables(
    source: Source,
    schema: Schema,
    scopes: list[Scope],
    *,
    hash_size: int | None = None,
    split: Split | None = None,
    encoding: TargetEncoding | None = None,
    sample: Sample | None = None,
    show_progress: bool = False,
) -> tuple[dict[str, AggregatedData], dict[str, int]]:
    """Count a source's records into tables, one set for each part of the split.

    Records of the first part are put into the sample. Returns the aggregations by part, and for each feature
    how many values it had no modality for.
    """
    parts = Parts(split or Split(), encoding or TargetEncoding())
    counted = folded(
        source,
        parts,
        [*schema.names, *schema.label_names],
        partial(Counted, schema, scopes, hash_size, len(parts.names), sample is not None),
        "counting",
        show_progress,
    )
    if sample is not None and counted.sample is not None:
        sample.merge(counted.sample)
    data = {}
    for part_name, tally in zip(parts.names, counted.tallies, strict=True):
        if not tally.rows:
            raise InputError(
                "there are no records to aggregate"
                if len(parts.names) == 1
                else f"no record fell into part {part_name!r} of the split: there are too few"
            )
        data[part_name] = AggregatedData(
            schema=schema,
            tables=tally.tables(),
            rows=tally.rows,
            positives=tuple(int(p) for p in tally.positives),
            split=parts.describe(part_name),
        )
    for k, label in enumerate(schema.labels):
        if label.positive is not None and not any(d.positives[k] for d in data.values()):
            told = option("positive")
            raise InputError(f"no record has {label.name} = {label.positive!r}, which {told} names")
    counts = dict(zip(schema.names, counted.unknown.tolist(), strict=True))
    return data, {name: n for name, n in counts.items() if n}
