"""Every triplet of features with fewer than 100 modalities: the field from its three pair tables, the
logistic on the same cells from the records, and Naive Bayes; NLLH on test records, quantile bins, Adult's
published split and a random fifth of Bank. The paper looked in this way for real distributions on which pairs
mislead.

All three are at their exact optimum. Each has one λ for all triplets of a data set: that of the best mean
NLLH on validation records over triplets taken at even steps. λ_μ is the default, 0.1.

Given the law of X the field *is* the logistic, so what it loses comes from the part of P(x) that pairs do not
show. That is measured as three-way information: by how many nats a record the test records' x are likelier
with the training counts of all three features together than under the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import agglearn
from agglearn.datasets import load_adkdd_test, load_adkdd_train
from agglearn.judge.scores import nllh
from agglearn.records.split import assign
from agglearn.tables.scopes import parse_scopes
from evidence.figures import BLUE, GREY, ORANGE, figure
from evidence.page import picture, table
from evidence.paper.published import TRIPLET_LARGEST_DIFFERENCE, TRIPLET_MODALITIES, TRIPLETS
from evidence.paper.triplet_fits import MODELS, Three, Triplet, columns, fit_model, judge
from evidence.runner import Cell, Results, Value
from evidence.splits import TITLES, Part, split

TITLE = "All triplets"

_BATCHES = {"adult": 8, "bank": 16, "adkdd": 4}
_NAMES = {**TITLES, "adkdd": "Criteo-AdKDD"}
_BAYES_LAMBDAS = tuple(4.0**k for k in range(-2, 8))  # it over-counts, which a high one mends
_SHOWN = 6  # of the worst triplets
_HIDDEN = 0.005  # nats of three-way information that are more than chance


@dataclass(frozen=True)
class Sizes:
    """How much is run: the share of the records, one triplet of so many, those that penalties are chosen on,
    and what they are chosen from."""

    share: float
    every: int
    chosen_on: int
    lambdas: tuple[float, ...]


FULL = Sizes(share=1.0, every=1, chosen_on=16, lambdas=(1 / 16, 1 / 4, 1.0, 4.0, 16.0, 64.0))
QUICK = Sizes(share=0.5, every=16, chosen_on=4, lambdas=(1.0, 4.0, 16.0))


def cells(config: Sizes) -> list[Cell]:
    """Some batches of triplets for each data set."""
    return [
        Cell(f"{name}-{batch:02d}", asdict(config), partial(_batch, name, batch, config))
        for name, batches in _BATCHES.items()
        for batch in range(batches)
    ]


def section(results: Results, images: Path) -> list[str]:
    """The largest differences, all triplets as a plot, and the worst with what pairs do not show."""
    found = {name: _rows(results, name) for name in _BATCHES}
    found = {name: rows for name, rows in found.items() if rows}
    header = ["", "triplets", "λ", "NLLH, mean: field", "logistic", "Naive Bayes"]
    header += ["largest logistic − field", "99 % are below", "largest on training records"]
    paper = f"< {TRIPLET_LARGEST_DIFFERENCE:g}"
    lines = table(
        header,
        [
            *(_summary(results, name, rows) for name, rows in found.items()),
            ["paper, Criteo-AdKDD", f"{TRIPLETS}", "", "", "", "", paper, "", ""],
        ],
    )
    lines += ["", "λ: of the field, the logistic and Naive Bayes."]
    if "adkdd" not in found:
        lines[-1] += " Criteo-AdKDD is left out, its files not being at hand."
    if not found:
        return lines
    _draw(found, images / "paper-triplets.svg")
    lines += picture(
        "paper-triplets.svg",
        "Above, NLLH of the field and of Naive Bayes against the logistic's; below, what the field loses "
        "against three-way information",
    )
    for name, rows in found.items():
        lines += _worst(name, rows)
    return lines


# -- what is run ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Parts:
    """Records to choose penalties on, to train on, and to judge by."""

    train: Part
    valid: Part
    whole: Part
    test: Part


def triplets_of(part: Part) -> list[Triplet]:
    """All triplets of the features that the paper's bound lets in."""
    schema = part.schema
    few = [n for n, card in zip(schema.names, schema.cards, strict=True) if card < TRIPLET_MODALITIES]
    return list(combinations(few, 3))


def _batch(name: str, batch: int, config: Sizes) -> Value:
    parts = _parts(name, config.share)
    # The matrices are so small that threads of the linear algebra only wait for each other.
    with threadpool_limits(1):
        penalties = _penalties(name, config)
        mine = triplets_of(parts.whole)[:: config.every][batch :: _BATCHES[name]]
        rows = [judge(triplet, parts.whole, parts.test, penalties) for triplet in mine]
    return {"penalties": penalties, "triplets": rows}


@lru_cache(maxsize=1)
def _parts(name: str, share: float) -> _Parts:
    if name == "adkdd":
        return _adkdd(share)
    found = split(name, "quantile", 0, share=share)
    return _Parts(found.train, found.valid, found.whole, found.test)


def _adkdd(share: float) -> _Parts:
    """The challenge's individual records: those published for training, and those of its test."""
    records, test = load_adkdd_train().drop_columns("sale"), load_adkdd_test().drop_columns("sale")
    records, test = (t.slice(0, int(share * t.num_rows)) for t in (records, test))
    learnt = agglearn.aggregate(records, "click", categorical=["*"], min_modality_count=1, tables="singles")
    few = [f.name for f in learnt.schema.features if f.n_modalities < TRIPLET_MODALITIES]
    schema = learnt.schema.select(few)
    scopes = tuple(parse_scopes("pairs", schema))

    def coded(table: Any) -> Part:
        return Part(schema, scopes, schema.encode(table), schema.encode_labels(table)[0])

    is_valid = assign(0, records.num_rows, 0, {"valid": 0.2}) == 1
    train, valid = records.filter(~is_valid), records.filter(is_valid)
    return _Parts(coded(train), coded(valid), coded(records), coded(test))


@lru_cache(maxsize=1)
def _penalties(name: str, config: Sizes) -> dict[str, float]:
    """For each model the λ of the best mean NLLH on validation records, over some of the triplets."""
    parts = _parts(name, config.share)
    triplets = triplets_of(parts.train)
    chosen = triplets[:: max(1, len(triplets) // config.chosen_on)][: config.chosen_on]
    found = {}
    threes = [(Three.of(triplet, parts.train), columns(triplet, parts.valid)) for triplet in chosen]
    for model in MODELS:
        grid = _BAYES_LAMBDAS if model == "naive_bayes" else config.lambdas

        def score(penalty: float, model: str = model) -> float:
            odds = (fit_model(model, three, penalty).log_odds(codes) for three, codes in threes)
            return fmean(nllh(parts.valid.y == 1, z) for z in odds)

        found[model] = max(grid, key=score)
    return found


# -- how it is shown -----------------------------------------------------------------------------


def _rows(results: Results, name: str) -> list[Value]:
    """All triplets of a data set, what the field loses most first."""
    found = results.starting(f"{name}-").values()
    rows = [row for batch in found for row in batch["triplets"]]
    return sorted(rows, key=_lost, reverse=True)


def _lost(row: Value) -> float:
    return float(row["logistic"] - row["field"])


def _summary(results: Results, name: str, rows: Sequence[Value]) -> list[str]:
    penalties = next(iter(results.starting(f"{name}-").values()))["penalties"]
    worst = rows[0]
    return [
        _NAMES[name],
        f"{len(rows):,}",
        ", ".join(f"{penalties[model]:g}" for model in MODELS),
        *(f"{fmean(row[model] for row in rows):.4f}" for model in MODELS),
        f"{_lost(worst):.4f} ± {worst['lost_error']:.4f}",
        f"{np.quantile([_lost(row) for row in rows], 0.99):.4f}",
        f"{max(row['lost_in_training'] for row in rows):.4f}",
    ]


def _worst(name: str, rows: Sequence[Value]) -> list[str]:
    """The triplets on which the field loses most, and how that goes with what pairs do not show."""
    within = fmean(abs(_lost(row)) < TRIPLET_LARGEST_DIFFERENCE for row in rows)
    ahead = fmean(_lost(row) < 0 for row in rows)
    lost = {
        is_hidden: [row["lost_in_training"] for row in rows if (row["information"] > _HIDDEN) == is_hidden]
        for is_hidden in (True, False)
    }
    why = ""
    if lost[True] and lost[False]:
        why = (
            f"On the training records the {len(lost[True]):,} with more than {_HIDDEN:g} nats of three-way "
            f"information lose {fmean(lost[True]):.4f} on average, the other {len(lost[False]):,} "
            f"{fmean(lost[False]):.4f}. "
        )
    shown = [
        [
            row["triplet"],
            f"{row['logistic']:.4f}",
            f"{row['field']:.4f}",
            f"{_lost(row):.4f} ± {row['lost_error']:.4f}",
            f"{row['lost_in_training']:.4f}",
            f"{row['information']:.4f}",
            f"{row['furthest']['state']}: {row['furthest']['records']:.1%} of the records, "
            f"{row['furthest']['field']:.1%} of the field",
        ]
        for row in rows[:_SHOWN]
    ]
    return [
        "",
        f"**{_NAMES[name]}**: {within:.0%} of the triplets are within {TRIPLET_LARGEST_DIFFERENCE:g} of the "
        f"logistic, and on {ahead:.0%} the field is ahead of it. {why}The worst:",
        "",
        *table(
            [
                "",
                "logistic",
                "field",
                "lost",
                "in training",
                "three-way information",
                "the laws differ most at",
            ],
            shown,
        ),
    ]


def _draw(found: dict[str, list[Value]], target: Path) -> None:
    dots = {"ls": "", "marker": "o", "ms": 3, "mew": 0, "alpha": 0.6}
    with figure(target, 1.0 + 4.4 * len(found), 7.4) as drawing:
        panels = drawing.subplots(2, len(found), squeeze=False)
        for (name, rows), above, below in zip(found.items(), *panels, strict=True):
            best = max(row[model] for row in rows for model in MODELS)
            ends = (min(0.0, *(row["logistic"] for row in rows)), 1.05 * best)
            above.plot(ends, ends, color=GREY, lw=1)
            logistic = [row["logistic"] for row in rows]
            for model, colour in (("naive_bayes", ORANGE), ("field", BLUE)):
                words = "field" if model == "field" else "Naive Bayes"
                above.plot(logistic, [row[model] for row in rows], color=colour, label=words, **dots)
            above.set(xlim=ends, ylim=ends, title=f"{_NAMES[name]}: {len(rows):,} triplets")
            above.set(xlabel="NLLH of the logistic", ylabel="NLLH of the model")
            above.legend(loc="upper left", markerscale=2)
            below.axhline(0, color=GREY, lw=1)
            below.plot([row["information"] for row in rows], [_lost(row) for row in rows], color=BLUE, **dots)
            below.set(xlabel="three-way information in X, nats", ylabel="NLLH, logistic − field")
            below.set_xscale("symlog", linthresh=0.001)  # most are 0 within chance, few are large
            above.grid()
            below.grid()
            if below is not panels[1][0]:
                below.sharex(panels[1][0])
                below.sharey(panels[1][0])
