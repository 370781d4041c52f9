"""The records of a set are dealt out to two days. The second day's tables are fitted anew, and beginning from
the first day's model (`fit --from`): until predictions come to rest, and for a fifth of the iterations that
the cold fit took. NLLH on the records to judge by, and iterations.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import agglearn
from evidence.known.parts import NAMES, known
from evidence.known.shares import Sizes
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS
from evidence.zoo.sets import SETS

TITLE = "The next day"
FULL, QUICK = Sizes(names=("adult", "bank", "credit")), Sizes(names=("adult",), rows=3_000)


_TITLES = {
    "yesterday": "the first day's model",
    "cold": "fitted anew",
    "warm": "from the first day's",
    "short": "from it, a fifth",
}


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set."""
    fit = agglearn.FitSettings().to_json()
    return [
        Cell(name, {"data": name, "rows": config.rows, "fit": fit}, partial(measure, name, config.rows))
        for name in config.names
    ]


def measure(name: str, rows: int | None) -> Value:
    """A cold and a warm fit of the second day."""
    has = known(name, rows)
    first = np.random.default_rng(1).random(has.records.num_rows) < 0.5
    days = [
        agglearn.aggregate(
            has.records.filter(pa.array(which)),
            has.label,
            positive=SETS[name].positive,
            schema=has.data.schema,
        )
        for which in (first, ~first)
    ]
    yesterday = agglearn.fit(days[0], threads=THREADS)
    cold = agglearn.fit(days[1], threads=THREADS)
    warm = agglearn.fit(days[1], start_from=yesterday, threads=THREADS)
    fifth = agglearn.FitSettings(iterations=cold.record.iterations // 5)
    short = agglearn.fit(days[1], fifth, start_from=yesterday, threads=THREADS)
    return {
        kind: {"nllh": has.judged.nllh(model.field), "iterations": model.record.iterations}
        for kind, model in _named(yesterday, cold, warm, short)
    }


def _named(*models: agglearn.Model) -> list[tuple[str, agglearn.Model]]:
    return list(zip(_TITLES, models, strict=True))


def section(results: Results, images: Path) -> list[str]:
    """NLLH and iterations of each."""
    rows = []
    for name in (n for n in NAMES if n in results):
        found = results[name]
        shown = [f"{found[k]['nllh']:.4f} ({found[k]['iterations']})" for k in _TITLES]
        rows.append([SETS[name].title, *shown])
    return table(["NLLH (iterations)", *_TITLES.values()], rows)
