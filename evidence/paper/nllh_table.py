"""NLLH on test records of the paper's four models, on the two of its data sets that are at hand, in two
binnings: agglearn's quantiles, and the ten bins of equal width of the authors' published code, which the
paper calls deciles (`evidence/splits.py` says exactly which). The field and the logistic have the
tables of all pairs of features.

Penalties (powers of 2), the pair of the best pair and the iteration at which Naive Bayes stops are chosen on
a fifth of the training records, and the model is fitted again to all of them. The field is also fitted with
the penalty of its default rule, which needs no records. The paper chose on the test records: those figures
stand below the others, marked *on test*. The logistic is L-BFGS with at most 200 iterations on the records,
as in the paper. Naive Bayes stands here four times: by frequencies; with an L2 penalty; and trained by the
paper's own method (a field of the single tables, steps of 1/tables), stopped where it is best. Test records
of Adult are those of its published split, or a random third of all records (± is the standard deviation over
such splits); those of Bank are a random fifth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from evidence.figures import BLUE, GREY, ORANGE, figure
from evidence.page import picture, spread, table
from evidence.paper import published
from evidence.paper.nllh_fits import models_of
from evidence.paper.nllh_reasons import reasons
from evidence.paper.nllh_words import explanation
from evidence.runner import Cell, Results, Value
from evidence.splits import BINNINGS, DATA_SETS, TITLES, split

TITLE = "NLLH of the field, its skyline and its baselines (Table 4)"

LINES = {
    "logistic": ("logistic, from records", "logistic"),
    "field": ("field", "field"),
    "field_rule": ("field, penalty by its rule", "field"),
    "naive_bayes_stopped": ("Naive Bayes, stopped early", "naive_bayes"),
    "naive_bayes": ("Naive Bayes, L2 penalty", "naive_bayes"),
    "naive_bayes_plain": ("Naive Bayes, frequencies", "naive_bayes"),
    "best_pair": ("best pair", "best_pair"),
    "logistic_on_test": ("*on test*: logistic", "logistic"),
    "field_on_test": ("*on test*: field", "field"),
    "naive_bayes_on_test": ("*on test*: Naive Bayes, stopped early", "naive_bayes"),
    "best_pair_on_test": ("*on test*: best pair", "best_pair"),
}
"""Lines of the tables: what each is called, and which model of the paper's it stands beside."""

ON_TEST = tuple(key for key in LINES if key.endswith("_on_test"))
SHOWN = ("logistic", "field", "naive_bayes_stopped", "best_pair")
"""What the figure shows."""


@dataclass(frozen=True)
class Sizes:
    """Sizes: which splits, the share of the records that is used, and how long Naive Bayes is trained."""

    adult_seeds: tuple[int, ...]
    bank_seeds: tuple[int, ...]
    share: float
    naive_bayes_iterations: int
    with_reasons: bool

    def seeds(self, name: str) -> tuple[int, ...]:
        return self.adult_seeds if name == "adult" else self.bank_seeds


FULL = Sizes(
    adult_seeds=(0, 1, 2, 3),
    bank_seeds=(0, 1, 2),
    share=1.0,
    naive_bayes_iterations=50,
    with_reasons=True,
)
QUICK = Sizes(
    adult_seeds=(0, 1, 2),
    bank_seeds=(0, 1),
    share=0.25,
    naive_bayes_iterations=20,
    with_reasons=True,
)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each data set, binning and split, and those that tell the reasons of a difference."""
    runs = [
        Cell(
            f"{name}-{binning}-seed{seed}",
            {
                "data": name,
                "binning": binning,
                "seed": seed,
                "share": config.share,
                "naive_bayes_iterations": config.naive_bayes_iterations,
            },
            partial(_run, name, binning, seed, config),
        )
        for name in DATA_SETS
        for binning in BINNINGS
        for seed in config.seeds(name)
    ]
    return runs + (reasons(DATA_SETS, config.share) if config.with_reasons else [])


def _run(name: str, binning: str, seed: int, config: Sizes) -> Value:
    parts = split(name, binning, seed, share=config.share)
    return {
        "train_rows": len(parts.whole.y),
        "test_rows": len(parts.test.y),
        "cells": parts.whole.layout.n_cells,
        "models": models_of(parts, config.naive_bayes_iterations),
    }


Scores = dict[str, list[float]]


def section(results: Results, images: Path) -> list[str]:
    """The tables, the figure, and why ours differ from the paper's."""
    lines: list[str] = []
    drawn = {}
    for name in DATA_SETS:
        columns = _columns(results, name)
        if not columns:
            continue
        lines += [f"### {TITLES[name]}", "", *_table(name, columns), "", _sizes(results, name), ""]
        drawn[name] = columns
    if drawn:
        _draw(drawn, images / "paper-nllh.svg")
        lines += picture("paper-nllh.svg", "NLLH by model: the paper's figures beside ours in both binnings")
    return lines + explanation(results, {name: _beyond_spread(name, c) for name, c in drawn.items()})


def _columns(results: Results, name: str) -> dict[str, Scores]:
    """NLLH of every model by the column it stands in: binning, and for Adult which splits."""
    columns: dict[str, Scores] = {}
    for binning in reversed(BINNINGS):  # the authors' binning beside the paper's figures
        for cell, found in results.starting(f"{name}-{binning}-").items():
            which = ""
            if name == "adult":
                which = ", published split" if results.settings(cell)["seed"] == 0 else ", random splits"
            scores = columns.setdefault(f"{binning} bins{which}", {})
            for model, score in found["models"].items():
                scores.setdefault(model, []).append(score["nllh"])
    return columns


def _table(name: str, columns: dict[str, Scores]) -> list[str]:
    paper = published.NLLH[name]
    first = next(iter(columns.values()))
    rows = []
    for key, (title, model) in LINES.items():
        difference = fmean(first[key]) - paper[model]
        ours = [spread(scores[key]) if key in scores else "" for scores in columns.values()]
        rows.append([title, f"{paper[model]:.3f}", *ours, f"{difference:+.3f}"])
    header = ["", "paper", *columns, f"{next(iter(columns))} − paper"]
    return table(header, rows)


def _beyond_spread(name: str, columns: dict[str, Scores]) -> str:
    """Which of the paper's figures lie outside our spread over random splits, in the authors' bins."""
    scores = next(
        (c for title, c in columns.items() if title.startswith("width") and "published" not in title), {}
    )
    near: list[str] = []
    far: list[str] = []
    for key in ON_TEST:
        values = scores.get(key, [])
        if len(set(values)) < 2:
            continue
        title, model = LINES[key]
        away = (published.NLLH[name][model] - fmean(values)) / stdev(values)
        (near if abs(away) <= 2 else far).append(f"{title.removeprefix('*on test*: ')} ({away:+.1f})")
    if not near + far:
        return ""
    return (
        f"{TITLES[name]}, in the authors' bins and chosen on test: the paper's figure less ours, in standard "
        f"deviations of the random splits, is within 2 for {', '.join(near) or 'none'}; outside for "
        f"{', '.join(far) or 'none'}."
    )


def _sizes(results: Results, name: str) -> str:
    """How many records there were, and how many splits."""
    found = results.starting(f"{name}-")
    one = next(iter(found.values()))
    by_binning = {
        binning: next(iter(results.starting(f"{name}-{binning}-").values()), {}).get("cells", 0)
        for binning in BINNINGS
    }
    cells = ", ".join(f"{count:,} cells in {binning} bins" for binning, count in by_binning.items() if count)
    seeds = sorted({results.settings(cell)["seed"] for cell in found})
    return (
        f"{one['train_rows']:,} training and {one['test_rows']:,} test records; {cells}; "
        f"seeds {', '.join(map(str, seeds))}."
    )


def _draw(data: dict[str, dict[str, Scores]], target: Path) -> None:
    """A dot for each split, the paper's figure as a line across."""
    colours = {"width": ORANGE, "quantile": BLUE}
    with figure(target, 8.2, 0.6 + 2.1 * len(data)) as drawing:
        axes = drawing.subplots(len(data), 1, squeeze=False, sharex=True)[:, 0]
        for axis, (name, columns) in zip(axes, data.items(), strict=True):
            named: set[str] = set()
            for place, key in enumerate(reversed(SHOWN)):
                paper = published.NLLH[name][LINES[key][1]]
                axis.plot(
                    [paper] * 2, [place - 0.38, place + 0.38], color=GREY, lw=2, label=_once("paper", named)
                )
                for column, scores in columns.items():
                    binning = column.split(" ")[0]
                    height = place + (0.16 if binning == "width" else -0.16)
                    is_published = "published" in column
                    axis.plot(
                        scores[key],
                        [height] * len(scores[key]),
                        "D" if is_published else "o",
                        ms=6 if is_published else 5,
                        alpha=1 if is_published else 0.55,
                        mec="none",
                        color=colours[binning],
                        label=_once(f"ours, {column}", named),
                    )
            axis.set_yticks(range(len(SHOWN)), [LINES[key][0] for key in reversed(SHOWN)])
            axis.grid(axis="x")
            axis.set_title(TITLES[name])
            axis.legend(fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes[-1].set_xlabel("NLLH on test records")


def _once(label: str, named: set[str]) -> str:
    """A label for the first of its kind; none for the others."""
    fresh = label not in named
    named.add(label)
    return label if fresh else "_"
