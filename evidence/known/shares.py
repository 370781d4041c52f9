"""The features of some of the records behind the tables are known, and no label: `fit --records`. With none
the field's own law of X is all there is, with all the fit is the penalised logistic regression, its
penalties found in the same way. Few are used beside the chains, as far as they tell more than chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import agglearn
from evidence.known.parts import NAMES, known
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import THREADS
from evidence.zoo.sets import SETS

TITLE = "Records without labels"


@dataclass(frozen=True)
class Sizes:
    """Data sets, shares of the records, and the most records of a set."""

    names: tuple[str, ...] = NAMES
    shares: tuple[float, ...] = (0.0, 0.01, 0.1, 1.0)
    rows: int | None = None


FULL = Sizes()
QUICK = Sizes(names=("adult",), shares=(0.0, 0.1, 1.0), rows=3_000)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set and share."""
    return [
        Cell(
            f"{name}-{share:g}",
            {"data": name, "share": share, "rows": config.rows, "fit": agglearn.FitSettings().to_json()},
            partial(measure, name, share, config.rows),
        )
        for name in config.names
        for share in config.shares
    ]


def measure(name: str, share: float, rows: int | None) -> Value:
    """The model with so many of the records, judged on others."""
    has = known(name, rows)
    records = has.some(share) if share else None
    model = agglearn.fit(has.data, records=records, threads=THREADS)
    used = model.record.used.get("records", {})
    return {
        "nllh": has.judged.nllh(model.field),
        "records": used.get("rows", 0),
        "trusted": used.get("share", 0.0),
        "iterations": model.record.iterations,
        "lambda_theta": model.record.lambda_theta,
        "judged_on": int(has.judged.positive.size),
    }


def section(results: Results, images: Path) -> list[str]:
    """NLLH by share, and what the records were trusted with."""
    found: dict[str, dict[float, Value]] = {}
    for cell in results:
        name, share = cell.rsplit("-", 1)
        found.setdefault(name, {})[float(share)] = results[cell]
    shares = sorted({share for by_share in found.values() for share in by_share})
    rows = []
    for name in (n for n in NAMES if n in found):
        by_share = found[name]
        rows.append(
            [
                SETS[name].title,
                *(
                    f"{by_share[s]['nllh']:.4f} ({by_share[s]['trusted']:.0%})" if s in by_share else ""
                    for s in shares
                ),
            ]
        )
    return table(["NLLH (trusted with)", *(f"{share:.0%}" for share in shares)], rows)
