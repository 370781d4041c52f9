"""NLLH of a field on validation records, and what `score_tables` makes of the tables of those records. A
field is fitted to four fifths of the training records of Adult and of Bank (ten quantile bins, all pairs) for
each penalty of a grid; the other fifth is the validation part. Three scores from its tables are set against
the records: by the field's *own* chains (what `agglearn evaluate` prints); by the chains of *one* field for
all, fitted to the same training tables with the penalty found from the counts (`score_tables(…, law=…)`); and
as a *difference* to the middle of the grid (`compare_heldout`), whose standard error leaves out all that two
penalties have in common. Errors are score minus truth: above 0 is too high. *Chance* is what no table can
tell of these very validation records, and the chains' error, as a standard error; *SE* is that of the score
beside the NLLH on all records there could be.

On data drawn from a known pairwise field the law of X that the score assumes is the true one. There NLLH is
compared with the exact NLLH of the fitted weights under the known field, by enumeration, in standard errors.

A simulated ads log is the other extreme: its features are noisy copies of three hidden variables, so that
most of them hang together at once, which pairs show only in part.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.ticker import NullLocator
from scipy.stats import spearmanr

import agglearn
from agglearn.datasets import AdsLog
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.field import Field
from agglearn.field.heldout import compare_heldout
from agglearn.field.layout import Layout
from agglearn.judge.scores import nllh
from agglearn.model.draw import population
from agglearn.model.model import problem_of
from agglearn.tables.data import AggregatedData
from agglearn.train.settings import FitSettings
from evidence.figures import BLUE, GREEN, GREY, ORANGE, figure
from evidence.page import picture, spread, table
from evidence.runner import Cell, Results, Value
from evidence.splits import DATA_SETS, TITLES, HeldOut, ads_tables, split
from evidence.timing import THREADS

Floats = npt.NDArray[np.float64]

TITLE = "The score from tables"
FIGURE = "tables-only-score.svg"

TARGET = 0.01
_LEAST_LAMBDA = 4.0
_ADS_SHAPE = (10, 100)  # features, the most modalities of one
_FIELD_CARDS = (4, 3, 5, 3, 4)
_FIELD_STRENGTH = 0.4
_ADS = "ads"
_TITLES = {**TITLES, _ADS: "Ads log, simulated"}
_COLOURS = {"adult": BLUE, "bank": ORANGE, _ADS: GREEN}


@dataclass(frozen=True)
class Sizes:
    """Splits, the grid of λ_θ, the ads log's records, the field's records and replicates (in a few cells)."""

    seeds: tuple[int, ...]
    lambdas: tuple[float, ...]
    share: float
    ads_rows: int
    ads_seeds: tuple[int, ...]
    rows: int
    heldout_rows: int
    cells: int
    replicates: int


_GRID = (1.0, 4.0, 16.0, 64.0, 256.0)
FULL = Sizes((0, 1, 2, 3, 4), _GRID, 1.0, 200_000, (0, 1), 20_000, 5_000, 4, 10)
QUICK = Sizes((0, 1), (4.0, 16.0, 64.0), 0.5, 20_000, (0,), 10_000, 3_000, 1, 4)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each split, and some for the replicates of the simulated field."""
    found = []
    for name in DATA_SETS:
        for seed in config.seeds:
            settings = {"seed": seed, "lambdas": list(config.lambdas), "share": config.share}
            work = partial(measure_split, name, seed, config)
            found.append(Cell(f"{name}-seed{seed}", {"data": name, **settings}, work))
    for seed in config.ads_seeds:
        settings = {"seed": seed, "lambdas": list(config.lambdas), "rows": config.ads_rows}
        found.append(Cell(f"{_ADS}-seed{seed}", settings, partial(measure_ads, seed, config)))
    for k in range(config.cells):
        first = k * config.replicates
        work = partial(measure_field, range(first, first + config.replicates), config)
        settings = {**asdict(config), "first": first, "cards": _FIELD_CARDS, "strength": _FIELD_STRENGTH}
        for unused in ("seeds", "lambdas", "share", "ads_rows", "ads_seeds"):
            del settings[unused]
        found.append(Cell(f"field-{k}", settings, work))
    return found


def measure_split(name: str, seed: int, config: Sizes) -> Value:
    """Scores from tables and from records of the same validation part, for each penalty."""
    parts = split(name, "quantile", seed, share=config.share)
    return _measure(parts.train.data, parts.valid.data, parts.valid.held_out, seed, config.lambdas)


def measure_ads(seed: int, config: Sizes) -> Value:
    """The same on a simulated ads log."""
    log = AdsLog(*_ADS_SHAPE, seed=seed)
    train = ads_tables(log, config.ads_rows)
    codes, y = log.sample(config.ads_rows // 4, seed=1)
    fresh = log.to_table(codes, y)
    tables = agglearn.aggregate(fresh, "click", schema=train.schema)
    records = HeldOut(train.schema.encode(fresh), y == 1)
    return _measure(train, tables, records, seed, config.lambdas)


def _measure(
    train: AggregatedData, tables: AggregatedData, records: HeldOut, seed: int, lambdas: tuple[float, ...]
) -> Value:
    def fitted(lambda_theta: float | None) -> agglearn.Model:
        settings = FitSettings(lambda_theta=lambda_theta, seed=seed)
        return agglearn.fit(train, settings, threads=THREADS)

    law = fitted(None)
    models = {value: fitted(value) for value in lambdas}
    middle = models[lambdas[len(lambdas) // 2]]
    problem = problem_of(middle, tables)
    judges = population(law, problem_of(law, tables), seed=seed, threads=THREADS).over(problem.layout)
    found = []
    for value, model in models.items():
        own = agglearn.score_tables(model, tables, threads=THREADS, seed=seed)
        common = agglearn.score_tables(model, tables, law=law, threads=THREADS, seed=seed)
        difference = compare_heldout(problem, judges, model.field, middle.field)
        found.append(
            {
                "lambda_theta": value,
                "true": _round(records.nllh(model.field)),
                "own": _round(own.nllh),
                "common": _round(common.nllh),
                "se": _round(own.nllh_se),
                "chains_se": _round(own.chains_se),
                "records_se": _round(own.records_se),
                "difference": _round(difference.nllh),
                "difference_se": _round(difference.nllh_se),
                "far": own.calibration.far,
                "far_by_chance": _round(own.calibration.far_by_chance),
                "cells": own.calibration.cells,
            }
        )
    return {"law_lambda": _round(law.record.lambda_theta), "rows": len(records.positive), "grid": found}


def measure_field(replicates: range, config: Sizes) -> Value:
    """Errors of the score, in standard errors, on records of a known pairwise field."""
    rng = np.random.default_rng(0)
    layout = Layout.plain(_FIELD_CARDS, list(combinations(range(len(_FIELD_CARDS)), 2)))
    known = ExactEngine(layout, config.rows)
    mu, theta = rng.normal(0, _FIELD_STRENGTH, (2, layout.n_cells))
    field = Field(layout, mu, theta, -0.7)
    joint = known.probabilities(field)
    found = []
    for k in replicates:
        train, valid = (
            known.sample(rows, field, 2 * k + part)
            for part, rows in enumerate((config.rows, config.heldout_rows))
        )
        data = agglearn.aggregate(_columns(*train), "y", categorical=["*"])
        tables = agglearn.aggregate(_columns(*valid), "y", schema=data.schema)
        assert data.schema.cards == _FIELD_CARDS  # so that codes are the field's own
        model = agglearn.fit(data, FitSettings(seed=k), threads=THREADS)
        score = agglearn.score_tables(model, tables, threads=THREADS, seed=k)
        found.append(
            {
                "exact": _round(_nllh_under(joint, model.field.log_odds(known.states.codes, THREADS))),
                "records": _round(nllh(valid[1] == 1, model.field.log_odds(valid[0], THREADS))),
                "score": _round(score.nllh),
                "se": _round(score.nllh_se),
                "chains_se": _round(score.chains_se),
                "records_se": _round(score.records_se),
                "far": score.calibration.far,
                "far_by_chance": _round(score.calibration.far_by_chance),
                "cells": score.calibration.cells,
            }
        )
    return {"replicates": found}


def _columns(codes: npt.NDArray[np.uint16], y: npt.NDArray[np.uint8]) -> dict[str, Any]:
    return {**{f"f{i}": column for i, column in enumerate(codes)}, "y": y}


def _nllh_under(joint: Floats, log_odds: Floats) -> float:
    """Exact NLLH of log-odds of every state under a law of (x, y)."""
    losses = np.column_stack([np.logaddexp(0.0, log_odds), np.logaddexp(0.0, -log_odds)])
    rate = joint.sum(axis=0)
    return float(1 + np.vdot(joint, losses) / np.vdot(rate, np.log(rate)))


def _round(value: float) -> float:
    return round(float(value), 5)


def section(results: Results, images: Path) -> list[str]:
    """Errors by penalty, the order of the grid, and the simulated field."""
    lines: list[str] = []
    splits = {name: list(results.starting(f"{name}-seed").values()) for name in (*DATA_SETS, _ADS)}
    splits = {name: found for name, found in splits.items() if found}
    if splits:
        lines += [*_errors(splits), "", *_summary(splits), "", *_order(splits)]
        _draw(splits, images / FIGURE)
        what = "NLLH from tables less NLLH on their records, by penalty: a dot a split, lines their means"
        lines += picture(FIGURE, what)
    replicates = [r for found in results.starting("field-").values() for r in found["replicates"]]
    if len(replicates) > 1:
        lines += _field(replicates)
    return lines


def _by_lambda(found: list[Value]) -> dict[float, list[Value]]:
    grid: dict[float, list[Value]] = {}
    for one in found:
        for entry in one["grid"]:
            grid.setdefault(entry["lambda_theta"], []).append(entry)
    return grid


def _errors(splits: dict[str, list[Value]]) -> list[str]:
    rows = []
    for name, found in splits.items():
        for value, entries in _by_lambda(found).items():
            own = [e["own"] - e["true"] for e in entries]
            common = [e["common"] - e["true"] for e in entries]
            rows.append(
                [
                    f"{_TITLES[name]}, λ_θ = {value:g}",
                    f"{fmean(e['true'] for e in entries):.4f}",
                    spread(own),
                    f"{max(map(abs, own)):.4f}",
                    f"{fmean(e['records_se'] for e in entries):.4f}",
                    f"{fmean(e['se'] for e in entries):.4f}",
                    spread(common),
                ]
            )
    header = ["", "NLLH on records", "error, own chains", "largest", "chance", "SE", "error, one law"]
    return table(header, rows)


def _summary(splits: dict[str, list[Value]]) -> list[str]:
    """Whether the score is as near to the records as it is meant to be."""
    lines = []
    for name, found in splits.items():
        off = {
            value: [e["own"] - e["true"] for e in entries]
            for value, entries in _by_lambda(found).items()
            if value >= _LEAST_LAMBDA
        }
        every = [error for errors in off.values() for error in errors]
        mean = max((fmean(errors) for errors in off.values()), key=abs)
        within = fmean(abs(error) <= TARGET for error in every)
        lines.append(
            f"{_TITLES[name]}, λ_θ ≥ {_LEAST_LAMBDA:g}: the mean error over {len(found)} splits is at most "
            f"{abs(mean):.4f} at any penalty; {within:.0%} of the single errors are within {TARGET:g}, the "
            f"largest is {max(every, key=abs):+.4f}."
        )
    return [" ".join(lines)]


def _order(splits: dict[str, list[Value]]) -> list[str]:
    """How like the records the tables order the grid, and what the paired difference is off by."""
    rows = []
    for name, found in splits.items():
        ranks = {"own": [], "common": []}  # type: dict[str, list[float]]
        lost: list[float] = []
        off: list[float] = []
        for one in found:
            grid = one["grid"]
            true = [e["true"] for e in grid]
            for which, seen in ranks.items():
                seen.append(float(spearmanr(true, [e[which] for e in grid]).statistic))
            lost.append(max(true) - max(grid, key=lambda e: e["own"])["true"])
            middle = grid[len(grid) // 2]
            off += [(e["difference"] - (e["true"] - middle["true"])) for e in grid if e is not middle]
        se = fmean(e["difference_se"] for one in found for e in one["grid"] if e["difference_se"] > 0)
        rows.append(
            [
                _TITLES[name],
                f"{fmean(ranks['own']):.3f}",
                f"{fmean(ranks['common']):.3f}",
                f"{max(lost):.4f}",
                f"{se:.4f}",
                f"{float(np.sqrt(np.mean(np.square(off)))):.4f}",
            ]
        )
    header = [
        "",
        "rank correlation, own chains",
        "one law",
        "most lost by the best from tables",
        "SE of a difference",
        "its error (root mean square)",
    ]
    return table(header, rows)


def _draw(splits: dict[str, list[Value]], target: Path) -> None:
    with figure(target, 8.0, 3.6) as drawing:
        axes = drawing.subplots(1, 2, sharey=True)
        titles = {"own": "by its own chains", "common": "by one field's chains for all"}
        for axis, (which, title) in zip(axes, titles.items(), strict=True):
            axis.axhspan(-TARGET, TARGET, color=GREY, alpha=0.15, lw=0)
            axis.axhline(0, color=GREY, lw=1)
            for place, (name, found) in enumerate(splits.items()):
                beside = 1.15 ** (place - 1)  # so that data sets do not hide each other
                errors = {
                    value * beside: [e[which] - e["true"] for e in entries]
                    for value, entries in _by_lambda(found).items()
                }
                points = [(value, error) for value, some in errors.items() for error in some]
                axis.scatter(*zip(*points, strict=True), 16, _COLOURS[name], alpha=0.5, lw=0)
                means = [fmean(some) for some in errors.values()]
                axis.plot(list(errors), means, color=_COLOURS[name], label=_TITLES[name])
            axis.set(title=title, xlabel="λ_θ", xscale="log")
            axis.set_xticks(list(_by_lambda(next(iter(splits.values())))))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_locator(NullLocator())
        axes[0].set_ylabel("NLLH from tables − on their records")
        axes[0].legend(loc="lower right")


def _field(replicates: list[Value]) -> list[str]:
    z = [(r["score"] - r["exact"]) / r["se"] for r in replicates]
    apart = [(r["score"] - r["records"]) / r["records_se"] for r in replicates]
    far, chance = (sum(r[k] for r in replicates) for k in ("far", "far_by_chance"))
    cells = sum(r["cells"] for r in replicates)
    return [
        f"**Known pairwise field**, {len(z)} replicates: (score − exact NLLH) / standard error has mean "
        f"{fmean(z):+.2f} ± {stdev(z) / len(z) ** 0.5:.2f} and standard deviation {stdev(z):.2f} (0 and 1 if "
        "the score is unbiased and its standard error right). Beside the NLLH on the held-out records "
        f"themselves, by chance as above: {fmean(apart):+.2f} ± {stdev(apart) / len(apart) ** 0.5:.2f} and "
        f"{stdev(apart):.2f}. Of {cells:,} cells {far} were more than three standard errors off, "
        f"{chance:.1f} are expected by chance.",
    ]
