"""Pair tables cannot show three-way structure, but `agglearn diagnose` ranks the triples by what asking for
them is likely to add ([the method](method.md) has the rule). Here the data holder is asked: the field is
fitted with all pairs and the 3 or 10 triples that rank first, and beside it with random triples, as many and
of nearly as many cells together (within a tenth where such can be drawn). All fits have the default settings,
so that the penalty is found from the tables. What is reported is NLLH on fresh records less that of the
field with all pairs, and the difference between the two, seed by seed.

Adult is judged on its published test part, Bank on a random fifth of the records; the seeds are random
subsets of four fifths of the other records. The planted logs are simulated ads logs of 12 features, each
seed another law, with normal effects of scale 1 on the cells of five random triples of the 220. The rule
was developed on validation parts of the training records, and on logs of other seeds.

Two more columns say what kind of gain it is. *Pairs again* gives the field the pair tables of the ten
triples a second time instead of the triples: no new information, but effects spread over more weights,
which the penalty then holds back less. *Up to four* ranks sets of up to four features within the ten
triples' number of cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import agglearn
from agglearn.datasets import load_adult, load_bank
from agglearn.field.field import Field
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem, make_problem
from agglearn.records.split import assign
from agglearn.schema.schema import Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.scopes import cells_of
from agglearn.tables.table import Scope
from agglearn.train.loop import fit
from agglearn.train.settings import FitSettings
from agglearn.trust.suggest import Suggestion, suggest_tables
from evidence.figures import BLUE, GREEN, GREY, ORANGE, figure
from evidence.page import picture, spread, table
from evidence.runner import Cell, Results, Value
from evidence.tables_only.planted import plant
from evidence.timing import THREADS

Floats = npt.NDArray[np.float64]

TITLE = "Which further tables to ask for"
PICTURE = "tables-only-extra.svg"

_TITLES = {"adult": "Adult", "bank": "Bank", "planted": "planted logs"}
_COUNTS = (3, 10)
_BUDGET = 20_000  # cells of all tables asked for
_MODALITIES = 12  # of a planted log's features, at most: ten triples are within the budget
_SHARE = 0.8  # of the training records, for each seed
_TRIES = 2000
_SLACK = 0.1  # of the cells


@dataclass(frozen=True)
class Sizes:
    """How much is run: seeds of each data set, random draws beside each ranking, records of a planted log."""

    seeds: int
    planted_seeds: int
    draws: int
    rows: int


FULL = Sizes(seeds=5, planted_seeds=8, draws=3, rows=100_000)
QUICK = Sizes(seeds=1, planted_seeds=1, draws=1, rows=30_000)


@dataclass(frozen=True)
class _Data:
    """Records to learn from and to judge by, and what was planted."""

    train: pa.Table
    test: pa.Table
    label: str
    positive: str | None = None
    planted: tuple[Scope, ...] = ()

    def aggregate(self, **options: Any) -> AggregatedData:
        categorical = ["*"] if self.planted else []
        return agglearn.aggregate(
            self.train, self.label, positive=self.positive, categorical=categorical, **options
        )


def cells(config: Sizes) -> list[Cell]:
    """One for each data set and seed."""
    runs = [(name, seed) for name in ("adult", "bank") for seed in range(config.seeds)]
    runs += [("planted", seed) for seed in range(config.planted_seeds)]
    return [
        Cell(f"{name}-seed{seed}", asdict(config), partial(_run, name, seed, config)) for name, seed in runs
    ]


def _data(name: str, seed: int, config: Sizes) -> _Data:
    if name == "planted":
        log = plant(seed, config.rows, config.rows // 2, modalities=_MODALITIES)
        return _Data(log.train, log.fresh, "click", planted=log.triples)
    if name == "adult":
        train, test = load_adult()
        label, positive = "income", ">50K"
    else:
        records = load_bank()
        held_out = assign(0, records.num_rows, 0, {"test": 0.2}) == 1
        train, test = records.filter(~held_out), records.filter(held_out)
        label, positive = "y", "yes"
    taken = assign(0, train.num_rows, seed, {"taken": _SHARE}) == 1
    return _Data(train.filter(taken), test, label, positive)


class _Fresh:
    """Records to judge by, and what a record loses by each model."""

    def __init__(self, schema: Schema, records: pa.Table) -> None:
        self.codes, self.positive = schema.encode(records), schema.encode_labels(records)[0] == 1
        rate = float(self.positive.mean())
        self.entropy = -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))

    def losses(self, field: Field) -> Floats:
        """Log loss of each record over the entropy of the label, of which NLLH is 1 − the mean."""
        log_odds = field.log_odds(self.codes, THREADS)
        found: Floats = np.logaddexp(0.0, np.where(self.positive, -log_odds, log_odds)) / self.entropy
        return found


def _run(name: str, seed: int, config: Sizes) -> Value:
    data = _data(name, seed, config)
    pairs = data.aggregate()
    schema = pairs.schema
    fresh = _Fresh(schema, data.test)
    settings = FitSettings(seed=seed)

    def losses(scopes: Sequence[Scope] = (), seed: int = seed) -> Floats:
        both = data.aggregate(schema=schema, tables=[*pairs.tables, *scopes])
        return fresh.losses(agglearn.fit(both, FitSettings(seed=seed), threads=THREADS).field)

    model = agglearn.fit(pairs, settings, threads=THREADS)
    base = (fresh.losses(model.field) + losses(seed=seed + 1000)) / 2
    every: list[Scope] = list(combinations(schema.names, 3))
    ranked = suggest_tables(model, pairs, 10**9, top=len(every), threads=THREADS, seed=seed)
    first = _affordable(ranked, max(_COUNTS))
    wider = suggest_tables(model, pairs, sum(s.cells for s in first), size=4, threads=THREADS, seed=seed)
    rng = np.random.default_rng([seed, 5])
    sizes = {scope: cells_of(scope, schema).size for scope in every}

    def gain(than: Floats) -> float:
        return _round((base - than).mean())

    found: Value = {"nllh": _round(1 - base.mean()), "pairs": pairs.n_cells, "fresh": len(base)}
    found["first"] = [s.to_json() for s in first]
    for k in _COUNTS:
        with_first = losses([s.features for s in first[:k]])
        drawn = [_matched(sizes, first[:k], rng) for _ in range(config.draws)]
        with_random = [losses(scopes) for scopes in drawn]
        apart = np.mean(with_random, axis=0) - with_first
        found[f"triples{k}"] = {
            "tables": len(first[:k]),
            "cells": sum(s.cells for s in first[:k]),
            "random_cells": _round(fmean(sum(sizes[s] for s in scopes) for scopes in drawn)),
            "first": gain(with_first),
            "random": [gain(than) for than in with_random],
            "difference": _round(apart.mean()),
            "records_se": _round(apart.std() / len(apart) ** 0.5),
        }
    found["again"] = gain(fresh.losses(_again(pairs, first, settings)))
    found["wider"] = gain(losses([s.features for s in wider]))
    found["largest"] = max(len(s.features) for s in wider)
    if data.planted:
        places = {s.features: place for place, s in enumerate(ranked, 1)}
        found["places"] = sorted(places[scope] for scope in data.planted)
        found["triples"] = len(ranked)
        found["planted"] = gain(losses(data.planted))
    return found


def _round(value: float) -> float:
    return round(float(value), 5)


def _affordable(ranked: Sequence[Suggestion], top: int) -> list[Suggestion]:
    chosen: list[Suggestion] = []
    left = _BUDGET
    for s in ranked:
        if len(chosen) < top and s.cells <= left:
            chosen.append(s)
            left -= s.cells
    return chosen


def _matched(sizes: dict[Scope, int], chosen: Sequence[Suggestion], rng: np.random.Generator) -> list[Scope]:
    """As many random triples, of nearly as many cells together."""
    scopes, numbers = list(sizes), np.array(list(sizes.values()))
    wanted = sum(s.cells for s in chosen)
    best, least = np.arange(len(chosen)), np.inf
    for _ in range(_TRIES):
        drawn = rng.choice(len(scopes), len(chosen), replace=False)
        off = abs(numbers[drawn].sum() / wanted - 1)
        if off < least:
            best, least = drawn, off
        if off < _SLACK:
            break
    return [scopes[i] for i in best]


def _again(pairs: AggregatedData, first: Sequence[Suggestion], settings: FitSettings) -> Field:
    """The field with the pair tables of the suggested triples given a second time."""
    problem = make_problem(pairs)
    layout = problem.layout
    index = pairs.schema.index
    twice = sorted({pair for s in first for pair in combinations(sorted(index[f] for f in s.features), 2)})
    tables = [*range(layout.n_tables), *(layout.scopes.index(pair) for pair in twice)]
    both = Layout.plain(layout.cards, [layout.scopes[t] for t in tables])
    d, c = (np.concatenate([layout.table(v, t).reshape(-1) for t in tables]) for v in (problem.d, problem.c))
    return fit(Problem(both, d, c, problem.rows, problem.positives), settings, threads=THREADS).field


def section(results: Results, images: Path) -> list[str]:
    """Gains beside one another, for each data set; where planted triples rank."""
    found = {name: list(results.starting(f"{name}-").values()) for name in _TITLES}
    found = {name: runs for name, runs in found.items() if runs}
    header = ["NLLH on fresh records", "all pairs", "cells", "ranked first", "random", "difference", "won"]
    lines = table(header, [_row(name, k, runs) for name, runs in found.items() for k in _COUNTS])
    lines += [
        "",
        "Gains beside all pairs, ± the standard deviation over seeds; of the difference ± is its standard "
        "error, for Adult and Bank with the sampling of the fresh records, which all seeds share. *Won*: "
        "seeds in which those ranked first gain more than the mean of the random draws.",
        "",
    ]
    header = ["Gain of NLLH", f"first {_COUNTS[-1]}", "pairs again", "up to four"]
    lines += table(header, [_kinds(name, runs) for name, runs in found.items()])
    if "planted" in found:
        lines += ["", *_places(found["planted"])]
    for name in ("adult", "bank"):
        if name in found:
            names = ", ".join(" × ".join(s["features"]) for s in found[name][0]["first"][:3])
            lines += ["", f"{_TITLES[name]}, first seed, asks first for {names}."]
    _draw(found, images / PICTURE)
    return lines + picture(PICTURE, "Gains of NLLH with the tables that rank first and with random ones")


def _row(name: str, k: int, runs: Sequence[Value]) -> list[str]:
    of = [run[f"triples{k}"] for run in runs]
    difference = [entry["difference"] for entry in of]
    error = stdev(difference) / len(of) ** 0.5 if len(of) > 1 else 0.0
    if name != "planted" or len(of) == 1:
        error = (error**2 + fmean(entry["records_se"] ** 2 for entry in of)) ** 0.5
    return [
        f"{_TITLES[name]}, {k} triples",
        spread([run["nllh"] for run in runs]),
        f"{fmean(entry['cells'] for entry in of):,.0f}",
        spread([entry["first"] for entry in of]),
        spread([fmean(entry["random"]) for entry in of]),
        f"{fmean(difference):+.4f} ± {error:.4f}",
        f"{sum(value > 0 for value in difference)} of {len(of)}",
    ]


def _kinds(name: str, runs: Sequence[Value]) -> list[str]:
    first = [run[f"triples{_COUNTS[-1]}"]["first"] for run in runs]
    return [
        _TITLES[name],
        *(spread(v) for v in (first, [run["again"] for run in runs], [run["wider"] for run in runs])),
    ]


def _places(runs: Sequence[Value]) -> list[str]:
    places = [place for run in runs for place in run["places"]]
    triples = runs[0]["triples"]
    among = sum(place <= 10 for place in places)
    gains = spread([run["planted"] for run in runs])
    return [
        f"Of {len(places)} planted triples {among} rank among the first 10 of {triples}, where chance would "
        f"put {len(places) * 10 / triples:.1f}; their mean place is {fmean(places):.0f}, by chance "
        f"{(triples + 1) / 2:.0f}. A fit with the planted triples themselves gains {gains}."
    ]


def _draw(found: dict[str, list[Value]], target: Path) -> None:
    with figure(target, 8.4, 3.4) as drawing:
        axes = drawing.subplots(1, max(len(found), 1), squeeze=False)[0]
        for ax, (name, runs) in zip(axes, found.items(), strict=False):
            for x, k in enumerate(_COUNTS):
                random = [gain for run in runs for gain in run[f"triples{k}"]["random"]]
                ranked = [run[f"triples{k}"]["first"] for run in runs]
                for shift, values, colour, label in (
                    (-0.16, random, GREY, "random"),
                    (0.16, ranked, BLUE, "ranked first"),
                ):
                    ax.scatter([x + shift] * len(values), values, s=16, color=colour, alpha=0.5, linewidths=0)
                    ax.scatter(
                        [x + shift],
                        [fmean(values)],
                        s=420,
                        marker="_",
                        color=colour,
                        label=label if x == 0 else None,
                    )
            again = fmean(run["again"] for run in runs)
            ax.axhline(again, color=ORANGE, linewidth=1, linestyle=":", label="pairs again")
            if "planted" in runs[0]:
                ax.axhline(
                    fmean(run["planted"] for run in runs),
                    color=GREEN,
                    linewidth=1,
                    label="the planted ones",
                )
            ax.axhline(0, color=GREY, linewidth=0.8)
            ax.set(title=_TITLES[name], xticks=range(len(_COUNTS)), xlim=(-0.6, len(_COUNTS) - 0.4))
            ax.set_xticklabels([f"{k} triples" for k in _COUNTS])
            ax.grid(axis="y")
        axes[0].set_ylabel("gain of NLLH, fresh records")
        handles, labels = axes[-1].get_legend_handles_labels()
        drawing.legend(handles, labels, fontsize=8.5, loc="outside lower center", ncols=len(labels))
