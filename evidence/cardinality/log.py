"""A simulated log of 20 million records: three features of 100,000 values, sixteen of 2 to 8, all pairs.
Each step in a process of its own that may take 8 GiB (`AGGLEARN_MEMORY`), with the most memory it held. To
hold: under 8 GiB on two cores.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from evidence.cardinality.records import LongLog
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS, in_process, machine

TITLE = "Three features of 100,000 values"
_SMALL = (2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 6, 8)
_TEST_ROWS = 200_000
_LIMIT = "import os\nos.environ['AGGLEARN_MEMORY'] = '8GiB'\n"


@dataclass(frozen=True)
class Sizes:
    """Records, and values of the three large features."""

    rows: int
    values: int


FULL, QUICK = Sizes(20_000_000, 100_000), Sizes(100_000, 3_000)


def cells(config: Sizes) -> list[Cell]:
    """One run of all steps."""
    settings = {"rows": config.rows, "values": config.values}
    return [Cell("steps", settings, partial(measure, config), again=True)]


def measure(config: Sizes) -> Value:
    """Seconds and memory of each step."""
    log = LongLog((*([config.values] * 3), *_SMALL))
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        log.write(here / "train.parquet", config.rows, 1)
        log.write(here / "test.parquet", min(_TEST_ROWS, config.rows), 2)
        paths = {name: str(here / name) for name in ("train.parquet", "test.parquet", "log.agg", "log.model")}
        steps = {
            "aggregate": (
                "import agglearn\n"
                f"found = agglearn.aggregate({paths['train.parquet']!r}, 'click', categorical=['*'])\n"
                f"agglearn.save(found, {paths['log.agg']!r})\n"
                "result = {'cells': found.n_cells, 'tables': len(found.tables)}"
            ),
            "fit": (
                "import agglearn\n"
                f"model = agglearn.fit(agglearn.load({paths['log.agg']!r}), threads={THREADS})\n"
                f"agglearn.save(model, {paths['log.model']!r})\n"
                "result = {'iterations': model.record.iterations, 'chains': model.record.chains}"
            ),
            "predict": (
                "import agglearn\nfrom agglearn.judge.evaluate import evaluate\n"
                "from agglearn.records.sources import open_source\n"
                f"model = agglearn.load({paths['log.model']!r})\n"
                f"result = {{'nllh': evaluate(model, open_source({paths['test.parquet']!r}))[0].nllh}}"
            ),
        }
        found = {name: in_process(_LIMIT + step) for name, step in steps.items()}
        return {"machine": machine(), "rows": config.rows, **found}


def section(results: Results, images: Path) -> list[str]:
    """Seconds and memory of each step."""
    if "steps" not in results:
        return []
    found = results["steps"]
    lines = [
        f"{found['rows']:,} records, {found['aggregate']['tables']} tables, "
        f"{found['aggregate']['cells']:,} cells; {found['fit']['iterations']} iterations of "
        f"{found['fit']['chains']:,} chains; NLLH {found['predict']['nllh']:.4f} on other records.",
        "",
    ]
    rows = [
        [step, f"{found[step]['seconds']:,.0f}", f"{found[step]['peak_bytes'] / 2**30:.2f}"]
        for step in ("aggregate", "fit", "predict")
    ]
    return lines + table(["", "seconds", "GiB"], rows)
