"""Records to tables, a batch at a time: memory is bounded by the tables and a batch, never the rows."""

from __future__ import annotations

import numpy as np

from agglearn.aggregation.tally import Tally
from agglearn.aggregation.triples import Sample
from agglearn.errors import InputError
from agglearn.records.options import Split, TargetEncoding
from agglearn.records.sources import Source
from agglearn.records.split import Parts
from agglearn.runtime.progress import meter
from agglearn.runtime.speech import option
from agglearn.schema.schema import Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Scope


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

    Records of the first part are offered to the sample. Returns the aggregations by part, and for each
    feature how many values it had no modality for.
    """
    parts = Parts(split or Split(), encoding or TargetEncoding())
    tallies = [Tally(schema, scopes, hash_size, copies=len(parts.names)) for _ in parts.names]
    unknown = np.zeros(len(schema.features), np.int64)
    cards = np.array(schema.cards)[:, None]
    with meter("counting", source.rows, show=show_progress) as advance:
        for batch, part in parts.batches(source, [*schema.names, *schema.label_names]):
            codes = schema.encode(batch)
            labels = schema.encode_labels(batch)
            unknown += (codes == cards).sum(axis=1)
            if part is None:
                tallies[0].add(codes, labels)
            else:
                for k, tally in enumerate(tallies):
                    tally.add(np.ascontiguousarray(codes[:, part == k]), labels[:, part == k])
            if sample is not None:
                sample.add(codes if part is None else codes[:, part == 0])
            advance(batch.num_rows)
    data = {}
    for part_name, tally in zip(parts.names, tallies, strict=True):
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
    counts = dict(zip(schema.names, unknown.tolist(), strict=True))
    return data, {name: n for name, n in counts.items() if n}
