"""Whether intervals of 90 % hold the true log-odds of nine records in ten where tables are private. As on
[the page on tables alone](tables-only.md), truth is a known pairwise field, here counted into tables with the
noise of a release, and fitted with everything by default. *Small* fields have random weights, drawn anew in
each replicate; *Adult's* and *Bank's* are the fields fitted to those data, with ten bins, of as many records.
*Error* is the root mean square distance of the fit from the truth, *reach* that of an interval's end from its
middle, in log-odds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import agglearn
from agglearn.privacy.release import simulate
from agglearn.tables.data import AggregatedData
from agglearn.train.settings import FitSettings
from evidence.runner import Cell, Results, Value
from evidence.splits import DATA_SETS, TITLES, split
from evidence.tables_only.intervals import (
    FIELDS,
    FRESH,
    SEEDS,
    coverage,
    covered,
    draw_records,
    measure_field,
    summary,
    tables_of,
)
from evidence.timing import THREADS

TITLE = "How sure a prediction is"

DELTA = 1e-6
_SMALL = ("b-weak", "e-middle", "h-strong", "k-six")


@dataclass(frozen=True)
class Sizes:
    """Small fields with their replicates, budgets of both kinds, seeds and share of the large ones."""

    fields: tuple[str, ...]
    replicates: int
    few: tuple[float, ...]
    epsilons: tuple[float, ...]
    seeds: tuple[int, ...]
    share: float


FULL = Sizes(_SMALL, 16, (0.1, 0.3, 1.0, 3.0), (0.3, 1.0, 3.0, 10.0), (0, 1), 1.0)
QUICK = Sizes(("e-middle",), 2, (1.0,), (1.0,), (0,), 0.2)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each kind of small field and budget, and for each draw from a large one."""
    found = []
    for name in config.fields:
        for epsilon in config.few:
            settings = {**asdict(FIELDS[name]), "replicates": config.replicates, "epsilon": epsilon}
            work = partial(measure_field, FIELDS[name], config.replicates, partial(_private, epsilon))
            found.append(Cell(f"field-{name}-epsilon{epsilon:g}", settings, work))
    for seed in config.seeds:
        for name in DATA_SETS:
            for epsilon in config.epsilons:
                settings = {"data": name, "seed": seed, "share": config.share, "epsilon": epsilon}
                work = partial(measure_large, name, seed, config.share, epsilon)
                found.append(Cell(f"{name}-epsilon{epsilon:g}-seed{seed}", settings, work))
    return found


def _private(epsilon: float, data: AggregatedData, seed: int) -> AggregatedData:
    return simulate(data, epsilon, DELTA, seed=seed)


def measure_large(name: str, seed: int, share: float, epsilon: float) -> Value:
    """Coverage on private tables of records of the field fitted to a data set."""
    whole = split(name, "quantile", 0, share=share).whole
    truth = agglearn.fit(whole.data, FitSettings(seed=0), threads=THREADS)
    records, y = draw_records(truth, len(whole.y), SEEDS + seed)
    given = truth.scopes[: len(truth.scopes) - truth.record.mains]
    data = _private(epsilon, tables_of(truth.schema, given, records, y, 0.0, seed), seed)
    model = agglearn.fit(data, FitSettings(seed=seed), threads=THREADS)
    fresh, _ = draw_records(truth, FRESH, 2 * SEEDS + seed)
    return covered(model, fresh, truth.field, seed)


def section(results: Results, images: Path) -> list[str]:
    """Coverage by kind of field and budget."""
    groups: dict[str, list[Value]] = {}
    for name in FULL.fields:
        for epsilon in FULL.few:
            cell = f"field-{name}-epsilon{epsilon:g}"
            if cell in results:
                groups[f"{FIELDS[name].title}, ε = {epsilon:g}"] = results[cell]["replicates"]
    for name in DATA_SETS:
        for epsilon in FULL.epsilons:
            found = list(results.starting(f"{name}-epsilon{epsilon:g}-seed").values())
            if found:
                groups[f"{TITLES[name]}'s field, ε = {epsilon:g}"] = found
    return [*coverage(groups), "", *summary(groups)]
