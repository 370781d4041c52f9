"""A table as negatives and positives of each label, and back: the form in which tables are released.

A record is in one cell of a table (the last one is for records without a cell), and there it is a negative or
a positive of each label: it moves exactly one number a label, by one. T tables and K labels make that T·K
numbers, whatever the order of the tables, and whether their cells are hashed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agglearn.schema.features import Feature
from agglearn.schema.rules import Cuts
from agglearn.schema.schema import Schema
from agglearn.tables.noise import Noise
from agglearn.tables.table import Array, Table

Ints = npt.NDArray[np.int64]


def classes_of(table: Table, schema: Schema) -> Ints:
    """Negatives and positives: (labels, 2, cells), with the records without a cell as one cell more.

    There is no such cell where the schema has a modality for everything, so that it would count nothing.
    """
    counts = table.counts.reshape(-1).astype(np.int64)
    sums = table.sums.reshape(len(table.sums), -1).astype(np.int64)
    if has_unknown(table, schema):
        unknown = table.unknown.astype(np.int64)
        counts = np.append(counts, unknown[0])
        sums = np.concatenate([sums, unknown[1:, None]], axis=1)
    return np.stack([counts - sums, sums], axis=1)


def has_unknown(table: Table, schema: Schema) -> bool:
    """Whether a record may have no cell in a table; a matter of the schema, not of the records."""
    return any(_leaves_some_unknown(schema.feature(name)) for name in table.features)


def _leaves_some_unknown(feature: Feature) -> bool:
    rule = feature.rule
    if isinstance(rule, Cuts):
        return True  # a text that is no number
    return feature.n_modalities in (rule.default, rule.missing)


def with_classes(table: Table, classes: Array, noise: Noise) -> Table:
    """The table put together from noisy negatives and positives, as :mod:`agglearn.tables.noise` says."""
    negatives, positives = classes[:, 0].astype(np.float64), classes[:, 1].astype(np.float64)
    counts = (negatives + positives).mean(axis=0)
    sums = (counts + positives - negatives) / 2
    n = table.n_cells
    unknown = np.concatenate([counts[n:], *sums[:, n:]]) if len(counts) > n else np.zeros(1 + len(sums))
    # Made anew, so that nothing else the exact table may hold comes along.
    return Table(
        features=table.features,
        counts=counts[:n].reshape(table.counts.shape),
        sums=sums[:, :n].reshape(table.sums.shape),
        unknown=unknown,
        cells=table.cells,
        noise=noise,
    )
