"""Tables with far more cells than records: only cells that are common enough come to light.

Noise on every empty cell would make the file as large as the table, and say nothing. Here the cells that have
a record get theirs, and those whose noisy count reaches a threshold are released; the others, empty or rare,
are withheld alike. The cells that someone alone brought about give them away with a probability of at most

    (records of a person) · (tables) · exp(−K (τ − records of a person)² / 4σ²)

for K labels: the noise on a count, a mean over labels of two discrete Gaussians each, is subgaussian with
variance 2σ²/K. The threshold τ makes that the share of δ that is set aside. For all other cells the release
is that of the noisy numbers, of which some are left out. The totals cannot be summed from what is left: they
are released beside it, as one more table with a single cell.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from agglearn.privacy.accounting import Ask
from agglearn.privacy.classes import Ints, classes_of, has_unknown, with_classes
from agglearn.privacy.mechanism import add_noise
from agglearn.privacy.release import when, with_every_cell, without_seed
from agglearn.tables.data import AggregatedData
from agglearn.tables.noise import Noise
from agglearn.tables.promise import Promise, Spending
from agglearn.tables.table import Table

Flags = npt.NDArray[np.bool_]

DELTA_SHARE = 0.1  # of δ, set aside for cells that come to light


def ask_for_common(data: AggregatedData, share: float = 1.0) -> Ask:
    """What releasing the common cells asks for: a record moves one number a table and label, and a total."""
    n_labels, n_tables = len(data.schema.labels), len(data.tables)
    what = f"common cells of {n_tables:,} tables, and totals"
    return Ask(what, 0, n_labels * (n_tables + 1), share)  # how many cells have a record is not to be told


def threshold(spending: Spending, n_tables: int, n_labels: int) -> float:
    """The noisy count that a cell must reach."""
    chances = spending.by * n_tables / spending.delta
    return spending.by + 2 * spending.scale * math.sqrt(math.log(chances) / n_labels)


def common_cells(
    data: AggregatedData,
    spending: Spending,
    promise: Promise,
    *,
    processes: int | None = None,
    show_progress: bool = False,
) -> AggregatedData:
    """The tables with noise, without the cells that are not common enough."""
    data = with_every_cell(data)
    noise = Noise(spending.mechanism, spending.scale, "classes")
    floor = threshold(spending, len(data.tables), len(data.schema.labels))
    exact = {scope: classes_of(table, data.schema) for scope, table in data.tables.items()}
    # A cell without a record is never seen. That of records without a cell is always there.
    present = {scope: _present(data.tables[scope], numbers, data) for scope, numbers in exact.items()}
    totals = _totals(data)
    drawn = add_noise(
        np.concatenate([*(exact[s][:, :, present[s]].reshape(-1) for s in exact), totals.reshape(-1)]),
        spending.mechanism,
        spending.scale,
        processes=processes,
        show_progress=show_progress,
    )
    tables, at = {}, 0
    for scope, numbers in exact.items():
        size = numbers[:, :, present[scope]].size
        classes = np.zeros(numbers.shape)
        classes[:, :, present[scope]] = drawn[at : at + size].reshape(*numbers.shape[:2], -1)
        at += size
        tables[scope] = _above(with_classes(data.tables[scope], classes, noise), present[scope], floor)
    negatives, positives = drawn[at:].reshape(totals.shape).T.astype(np.float64)
    rows = float((negatives + positives).mean())
    return AggregatedData(
        schema=data.schema,
        tables=tables,
        rows=rows,
        positives=tuple(((rows + positives - negatives) / 2).tolist()),
        absent="suppressed",
        floor=floor,
        split=without_seed(data.split),
        parts=when(data),
        promise=promise,
    )


def _present(table: Table, numbers: Ints, data: AggregatedData) -> Flags:
    present: Flags = numbers[0].sum(axis=0) > 0
    if has_unknown(table, data.schema):
        present[-1] = True
    return present


def _totals(data: AggregatedData) -> Ints:
    """Negatives and positives of each label in all."""
    positives = np.array(data.positives, np.int64)
    return np.stack([int(data.rows) - positives, positives], axis=1)


def _above(table: Table, present: Flags, floor: float) -> Table:
    """The table without what is below the threshold."""
    kept = present[: table.n_cells].reshape(table.counts.shape) & (table.counts >= floor)
    return replace(
        table,
        counts=np.where(kept, table.counts, 0.0),
        sums=np.where(kept, table.sums, 0.0),
        measured=None if kept.all() else kept,
    )
