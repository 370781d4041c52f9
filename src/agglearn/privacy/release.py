"""Exact tables → private ones: every number that leaves is noisy, or follows from noisy ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from agglearn.errors import TableError
from agglearn.privacy.accounting import Ask, uncertified
from agglearn.privacy.budget import Budget
from agglearn.privacy.classes import Ints, classes_of, with_classes
from agglearn.privacy.mechanism import add_noise
from agglearn.runtime.options import check_seed
from agglearn.runtime.random import Use, generator
from agglearn.tables.cells import DenseCells
from agglearn.tables.data import AggregatedData
from agglearn.tables.ledger import Part
from agglearn.tables.noise import Noise
from agglearn.tables.promise import Promise, Spending
from agglearn.tables.scopes import shape_of
from agglearn.tables.table import Array, Scope, Table

USUAL_DELTA = 1e-6


def noisy_tables(
    data: AggregatedData,
    spending: Spending,
    promise: Promise,
    *,
    processes: int | None = None,
    show_progress: bool = False,
) -> AggregatedData:
    """The tables with the noise that was reckoned for them."""
    data = with_every_cell(data)

    def draw(numbers: Ints) -> Ints:
        return add_noise(
            numbers, spending.mechanism, spending.scale, processes=processes, show_progress=show_progress
        )

    return noisy_by(data, Noise(spending.mechanism, spending.scale, "classes"), draw, promise)


def simulate(
    data: AggregatedData,
    epsilon: float,
    delta: float | None = USUAL_DELTA,
    mechanism: str = "gaussian",
    seed: int = 0,
    *,
    max_records: int = 1,
) -> AggregatedData:
    """Tables with as much noise as a private release would have, from a seed: for experiments only.

    The noise comes from numpy and can be drawn again by whoever knows the seed. **It protects nobody**, and
    the tables say so.

    Parameters
    ----------
    data
        Exact tables.
    epsilon, delta, mechanism
        The budget whose noise to simulate. A Laplace law takes no account of δ here.
    seed
        Of the noise.
    max_records
        The most records of one person.
    """
    data = with_every_cell(data)
    check_seed(seed)
    if mechanism == "laplace":
        delta = None
    budget = Budget(epsilon=epsilon, delta=delta, mechanism=mechanism, max_records=max_records)
    [spending] = uncertified(budget, [ask_for_tables(data)])
    rng = generator(seed, Use.SIMULATED_NOISE)

    def draw(numbers: Ints) -> Ints:
        law = rng.normal if mechanism == "gaussian" else rng.laplace
        return numbers + np.rint(law(0.0, spending.scale, numbers.shape)).astype(np.int64)

    promise = Promise(
        epsilon=epsilon,
        delta=budget.told_delta,
        max_records=max_records,
        unit="record" if max_records == 1 else "person",
        spent=(spending,),
        accounting="a simulation from a seed: nothing is promised",
        simulated=True,
    )
    return noisy_by(data, Noise(mechanism, spending.scale, "classes"), draw, promise)


def with_every_cell(data: AggregatedData) -> AggregatedData:
    """Exact tables with a cell for every combination: which were seen tells of the records."""
    require_exact(data)
    tables = {
        scope: table.over(DenseCells(shape_of(scope, data.schema))) if table.cells.tied else table
        for scope, table in data.tables.items()
    }
    return replace(data, tables=tables)


def require_exact(data: AggregatedData) -> None:
    """Refuse tables that have noise already, or lack cells."""
    if data.promise is not None:
        raise TableError(
            "these tables are private already: noise a second time would spend a second budget on the same "
            "people for less; start from the exact tables"
        )
    for table in data.tables.values():
        if not table.exact or table.measured is not None:
            raise TableError(
                f"table {table.title} is not exact: it has noise, withheld cells or fractions already, and "
                "what more noise would promise cannot be told"
            )


def ask_for_tables(data: AggregatedData, share: float = 1.0) -> Ask:
    """What releasing all tables asks for: a record moves one number a table and label."""
    data = with_every_cell(data)
    n_labels, n_tables = len(data.schema.labels), len(data.tables)
    numbers = sum(classes_of(t, data.schema).size for t in data.tables.values())
    labels = "" if n_labels == 1 else f" of {n_labels} labels"
    return Ask(f"negatives and positives of {n_tables:,} tables{labels}", numbers, n_labels * n_tables, share)


def noisy_by(
    data: AggregatedData, noise: Noise, draw: Callable[[Ints], Ints], promise: Promise | None = None
) -> AggregatedData:
    """All tables with noise on negatives and positives, and totals that follow from them."""
    exact = {scope: classes_of(table, data.schema) for scope, table in data.tables.items()}
    drawn = draw(np.concatenate([numbers.reshape(-1) for numbers in exact.values()]))
    classes: dict[Scope, Array] = {}
    at = 0
    for scope, numbers in exact.items():
        classes[scope] = drawn[at : at + numbers.size].reshape(numbers.shape)
        at += numbers.size
    tables = {scope: with_classes(data.tables[scope], classes[scope], noise) for scope in exact}
    rows, *positives = totals(list(tables.values()), [c.shape[-1] for c in classes.values()])
    # Made anew, so that nothing else the exact data may hold comes along.
    return AggregatedData(
        schema=data.schema,
        tables=tables,
        rows=rows,
        positives=tuple(positives),
        split=without_seed(data.split),
        parts=when(data),
        promise=promise,
    )


def totals(tables: Sequence[Table], cells: Sequence[int]) -> list[float]:
    """Records, and positives of each label, from noisy tables alone.

    Each table counts every record, with the noise of all its cells: their mean, weighted by the inverse.
    """
    weights = 1 / (np.array(cells) * [t.noise_moments.count for t in tables])
    each = [
        np.concatenate([[t.counts.sum()], t.sums.reshape(len(t.sums), -1).sum(axis=1)]) + t.unknown
        for t in tables
    ]
    mean: list[float] = (weights @ np.array(each) / weights.sum()).tolist()
    return mean


def without_seed(split: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """What may be told of a split: whoever knew the seed could tell which record went where."""
    return split and {name: value for name, value in split.items() if name != "seed"}


def when(data: AggregatedData) -> tuple[Part, ...]:
    """What may be told of where the records come from: when they are from, as the holder put it."""
    return tuple(Part(period=part.period) for part in data.parts) if len(data.parts) == 1 else ()
