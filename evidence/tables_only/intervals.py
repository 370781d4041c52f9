"""Whether intervals of 90 % hold the true log-odds of nine records in ten. Truth is a known pairwise field:
records are drawn from it, counted into tables, a field is fitted to the tables (by default, unless λ_θ is
given), and its intervals are held against the true log-odds of fresh records of the same field. *Small*
fields have random weights, drawn anew in each replicate. *Adult's* and *Bank's* are the fields fitted to
those data, from which as many records as the data have are drawn by long runs of their chains. *Error* is the
root mean square distance of the fit from the truth, *reach* that of an interval's end from its middle, both
in log-odds; *undone* is what training left undone beside what the tables leave open (κ, a ratio of squares).

Noise is Gaussian, on every number of every table. Small fields with noise have λ_θ given.

A parametric *bootstrap* refits the field to tables of records drawn from itself. It shows how far the
penalised fit scatters, A⁻¹IA⁻¹ with A = I + 2λ_θ, and nothing of what the penalty hides. Its standard
deviations are set beside those that the same conjugate gradients give for A⁻¹IA⁻¹ without any refit (refits
scatter less, as training stops before it has followed all the noise), and beside the intervals', which must
be larger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import numpy.typing as npt

import agglearn
from agglearn import Model
from agglearn.aggregation.tally import Tally
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.engines.local import LocalEngine
from agglearn.field.field import Field
from agglearn.field.information import Information
from agglearn.field.layout import Layout
from agglearn.field.population import Chains
from agglearn.model.draw import population
from agglearn.runtime.random import Numbers, Use
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.noise import Noise
from agglearn.tables.table import Scope, Table
from agglearn.train.settings import FitSettings
from agglearn.trust.intervals import model_posterior
from agglearn.trust.prior import Normals, mean_square
from evidence.figures import BLUE, GREY, ORANGE, figure
from evidence.page import picture, table
from evidence.runner import Cell, Results, Value
from evidence.splits import DATA_SETS, TITLES, split
from evidence.timing import THREADS

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint16]

TITLE = "How sure a prediction is"
FIGURE = "tables-only-intervals.svg"
LEVEL = 0.9
TARGET = (0.85, 0.95)

_INTERCEPT = -1.0
_MU_STRENGTH = 0.4
FRESH = 2000
_SWEEPS = 50  # of copies of the chains, until they are records of their own
SEEDS = 1000  # apart, so that no two draws share their numbers


@dataclass(frozen=True)
class Kind:
    """A kind of small field: its features, how strong its weights are, and how it is counted and fitted."""

    cards: tuple[int, ...]
    strength: float
    rows: int
    sigma: float = 0.0
    lambda_theta: float | None = None

    @property
    def title(self) -> str:
        text = f"{len(self.cards)} features, weights {self.strength:g}, {self.rows:,} records"
        text += f", noise {self.sigma:g}" if self.sigma else ""
        return text + (f", λ_θ = {self.lambda_theta:g}" if self.lambda_theta else "")


_FOUR, _SIX = (4, 3, 5, 3), (6, 5, 4, 6, 5, 4)
FIELDS = {
    "a-weak-few": Kind(_FOUR, 0.15, 500),
    "b-weak": Kind(_FOUR, 0.15, 5_000),
    "c-weak-many": Kind(_FOUR, 0.15, 50_000),
    "d-middle-few": Kind(_FOUR, 0.5, 500),
    "e-middle": Kind(_FOUR, 0.5, 5_000),
    "f-middle-many": Kind(_FOUR, 0.5, 50_000),
    "g-strong-few": Kind(_FOUR, 1.0, 500),
    "h-strong": Kind(_FOUR, 1.0, 5_000),
    "i-strong-many": Kind(_FOUR, 1.0, 50_000),
    "j-six-few": Kind(_SIX, 0.3, 3_000),
    "k-six": Kind(_SIX, 0.3, 30_000),
    "l-little-penalty": Kind(_FOUR, 0.5, 5_000, lambda_theta=0.5),
    "m-much-penalty": Kind(_FOUR, 0.5, 5_000, lambda_theta=30.0),
    "n-noise": Kind(_FOUR, 0.5, 5_000, sigma=5.0, lambda_theta=4.0),
    "o-much-noise": Kind(_FOUR, 0.5, 5_000, sigma=20.0, lambda_theta=16.0),
}


@dataclass(frozen=True)
class Sizes:
    """Replicates of each small field; fields like Adult's and Bank's, on a share of their records; refits."""

    fields: tuple[str, ...]
    replicates: int
    seeds: tuple[int, ...]
    share: float
    refits: int


FULL = Sizes(tuple(FIELDS), 24, (0, 1, 2, 3, 4), 1.0, 20)
QUICK = Sizes(("a-weak-few", "e-middle", "n-noise"), 3, (0,), 0.3, 4)


def cells(config: Sizes) -> list[Cell]:
    """A cell for each kind of small field, each draw from a large one, and each bootstrap."""
    found = []
    for name in config.fields:
        settings = {**asdict(FIELDS[name]), "replicates": config.replicates}
        found.append(Cell(f"field-{name}", settings, partial(measure_field, FIELDS[name], config.replicates)))
    for name in DATA_SETS:
        for seed in config.seeds:
            for sigma in (0.0, 5.0):
                kind = f"noise-seed{seed}" if sigma else f"seed{seed}"
                settings = {"data": name, "seed": seed, "share": config.share, "sigma": sigma}
                work = partial(measure_large, name, seed, config.share, sigma)
                found.append(Cell(f"{name}-{kind}", settings, work))
        settings = {"data": name, "share": config.share, "refits": config.refits}
        work = partial(measure_bootstrap, name, config.share, config.refits)
        found.append(Cell(f"bootstrap-{name}", settings, work))
    return found


def measure_field(
    kind: Kind, replicates: int, with_noise: Callable[[AggregatedData, int], AggregatedData] | None = None
) -> Value:
    """Coverage on replicates of a small field, of predictions and weights."""
    schema = Schema(
        tuple(
            Categorical(name=f"f{i}", values=tuple(map(str, range(card))), missing=False)
            for i, card in enumerate(kind.cards)
        ),
        (Label("y"),),
    )
    scopes = list(combinations(schema.names, 2))
    layout = Layout.plain(kind.cards, list(combinations(range(len(kind.cards)), 2)))
    engine = ExactEngine(layout, kind.rows)
    found = []
    for k in range(replicates):
        rng = np.random.default_rng([7, k])
        mu = rng.normal(0, _MU_STRENGTH, layout.n_cells)
        theta = rng.normal(0, kind.strength, layout.n_cells)
        truth = Field(layout, mu, theta, _INTERCEPT)
        records, y = engine.sample(kind.rows, truth, SEEDS + k)
        data = tables_of(schema, scopes, records, y, kind.sigma, k)
        data = with_noise(data, k) if with_noise else data
        model = agglearn.fit(data, FitSettings(kind.lambda_theta, seed=k), threads=THREADS)
        fresh, _ = engine.sample(FRESH, truth, 2 * SEEDS + k)
        found.append(covered(model, fresh, truth, k))
    return {"replicates": found}


def measure_large(name: str, seed: int, share: float, sigma: float) -> Value:
    """Coverage on records of the field fitted to a data set."""
    whole = split(name, "quantile", 0, share=share).whole
    truth = agglearn.fit(whole.data, FitSettings(seed=0), threads=THREADS)
    records, y = draw_records(truth, len(whole.y), SEEDS + seed)
    data = tables_of(truth.schema, truth.scopes, records, y, sigma, seed)
    penalty = truth.record.lambda_theta if sigma else None
    model = agglearn.fit(data, FitSettings(penalty, seed=seed), threads=THREADS)
    fresh, _ = draw_records(truth, FRESH, 2 * SEEDS + seed)
    return covered(model, fresh, truth.field, seed)


def measure_bootstrap(name: str, share: float, refits: int) -> Value:
    """Standard deviations of predictions over refits, beside those found without any."""
    whole = split(name, "quantile", 0, share=share).whole
    model = agglearn.fit(whole.data, FitSettings(seed=0), threads=THREADS)
    fresh, _ = draw_records(model, FRESH, 2 * SEEDS)
    penalty = model.record.lambda_theta
    scores = []
    for k in range(refits):
        records, y = draw_records(model, len(whole.y), SEEDS + k)
        data = tables_of(model.schema, model.scopes, records, y, 0.0, k)
        again = agglearn.fit(data, FitSettings(penalty, seed=k), threads=THREADS)
        scores.append(again.field.log_odds(fresh, THREADS))
    refitted = np.std(scores, axis=0, ddof=1)
    found = {
        "bootstrap": refitted,
        "penalised": np.sqrt(_scatter(model, fresh, 2 * penalty)),
        "interval": _deviations(model, fresh),
    }
    order = np.argsort(found["penalised"])
    tenths = {key: [root(part) for part in np.array_split(sd[order], 10)] for key, sd in found.items()}
    return {**{key: root(sd) for key, sd in found.items()}, "tenths": tenths, "refits": refits}


def _scatter(model: Model, fresh: Codes, penalty: float, draws: int = 64) -> Floats:
    """Variance of each record's log-odds in A⁻¹IA⁻¹, by the same draws as the intervals."""
    assert model.chains is not None
    members = population(model, threads=THREADS, members=model.chains.shape[1])
    information = Information(members, model.field, model.rows, THREADS)
    normals = Normals(0, Use.POSTERIOR, np.zeros(model.layout.n_cells))
    judged = Chains(model.layout, fresh, threads=THREADS)
    total = np.zeros(fresh.shape[1])
    for start in range(0, draws, 16):
        off = normals.tables(information, range(start, start + 16))
        total += mean_square(judged, information.solve(off, penalty, 0.01)) * 16 / draws
    return total


def _deviations(model: Model, fresh: Codes) -> Floats:
    draws = model_posterior(model, threads=THREADS).draws
    return np.sqrt(mean_square(Chains(model.layout, fresh, threads=THREADS), draws))


def covered(model: Model, fresh: Codes, truth: Field, seed: int) -> Value:
    """How many intervals of a model hold the truth, and how long they are."""
    posterior = model_posterior(model, seed=seed, threads=THREADS)
    true, fitted = (field.log_odds(fresh, THREADS) for field in (truth, model.field))
    lower, upper = posterior.log_odds(fresh, LEVEL, THREADS)
    weights = None  # a fit that has main effects beside its tables has other weights than the truth
    if model.layout == truth.layout:
        low, high = posterior.weights(LEVEL)
        weights = _round(((low <= truth.theta) & (truth.theta <= high)).mean())
    held = (lower <= true) & (true <= upper)
    tenth = np.array_split(held[np.argsort(true)], 10)
    return {
        "cover": _round(held.mean()),
        "tenths": [_round(part.mean()) for part in tenth],
        "weights": weights,
        "error": root(fitted - true),
        "reach": root((upper - lower) / 2),
        "lambda_theta": _round(model.record.lambda_theta),
        "precision": _round(posterior.precision),
        "undone": _round(posterior.undone),
    }


def draw_records(model: Model, n: int, seed: int) -> tuple[Codes, npt.NDArray[np.uint8]]:
    """Records of a field and their labels: copies of its chains, moved until they are their own."""
    assert model.chains is not None
    rng = np.random.default_rng(seed)
    numbers = Numbers(seed)
    copies = model.chains[:, rng.integers(0, model.chains.shape[1], n)]
    engine = LocalEngine(model.layout, copies, model.rows, numbers, THREADS)
    engine.settle(model.field, _SWEEPS, numbers)
    codes = engine.chains
    p = 1 / (1 + np.exp(-model.field.log_odds(codes, THREADS)))
    return codes, (rng.random(n) < p).astype(np.uint8)


def tables_of(
    schema: Schema, scopes: Any, codes: Codes, y: npt.NDArray[np.uint8], sigma: float, seed: int
) -> AggregatedData:
    """Tables of coded records, with Gaussian noise if any."""
    tally = Tally(schema, list(scopes))
    tally.add(codes, y[None, :])
    tables: dict[Scope, Table] = dict(tally.tables())
    if sigma:
        rng = np.random.default_rng([9, seed])
        noise = Noise("gaussian", sigma)
        tables = {
            scope: Table(
                scope,
                t.counts + rng.normal(0, sigma, t.counts.shape),
                t.sums + rng.normal(0, sigma, t.sums.shape),
                noise=noise,
            )
            for scope, t in tables.items()
        }
    return AggregatedData(schema, tables, len(y), (int(y.sum()),))


def root(values: Floats) -> float:
    return _round(np.sqrt(np.mean(np.square(values))))


def _round(value: Any) -> float:
    return round(float(value), 4)


def section(results: Results, images: Path) -> list[str]:
    """Coverage by kind of field, a figure of it, and the bootstrap."""
    groups: dict[str, list[Value]] = {}
    for name, kind in FIELDS.items():
        if f"field-{name}" in results:
            groups[kind.title] = results[f"field-{name}"]["replicates"]
    for name in DATA_SETS:
        for cell, title in (("seed", "Adult's field"), ("noise-seed", "Adult's field, noise 5")):
            found = list(results.starting(f"{name}-{cell}").values())
            if found:
                groups[title.replace("Adult", TITLES[name])] = found
    lines: list[str] = []
    if groups:
        lines += [*coverage(groups), "", *summary(groups)]
        _draw(groups, images / FIGURE)
        what = "Share of true log-odds that intervals of 90 % hold, by kind of field"
        lines += picture(FIGURE, what)
    return lines + _bootstrap(results)


def coverage(groups: dict[str, list[Value]]) -> list[str]:
    rows = []
    for title, found in groups.items():
        means = {key: fmean(one[key] for one in found) for key in ("lambda_theta", "undone")}
        weights = [one["weights"] for one in found if one["weights"] is not None]
        squares = {key: fmean(one[key] ** 2 for one in found) ** 0.5 for key in ("error", "reach")}
        rows.append(
            [
                title,
                str(len(found)),
                f"{fmean(one['cover'] for one in found):.1%}{_standard_error(found)}",
                f"{fmean(weights):.1%}" if weights else "–",
                f"{means['lambda_theta']:.3g}",
                f"{squares['error']:.3f}",
                f"{squares['reach']:.3f}",
                f"{means['undone']:.2f}",
            ]
        )
    header = ["", "replicates", "predictions held", "weights held", "λ_θ", "error", "reach", "undone"]
    return table(header, rows)


def _standard_error(found: list[Value]) -> str:
    if len(found) < 2:
        return ""
    return f" ± {stdev(one['cover'] for one in found) / len(found) ** 0.5:.1%}"


def summary(groups: dict[str, list[Value]]) -> list[str]:
    means = {title: fmean(one["cover"] for one in found) for title, found in groups.items()}
    outside = {title: mean for title, mean in means.items() if not TARGET[0] <= mean <= TARGET[1]}
    text = (
        f"{len(means) - len(outside)} of {len(means)} kinds are between {TARGET[0]:.0%} and {TARGET[1]:.0%}; "
        f"the mean over kinds is {fmean(means.values()):.1%}."
    )
    if outside:
        text += " Outside: " + "; ".join(f"{title} ({mean:.1%})" for title, mean in outside.items()) + "."
    return [text]


def _bootstrap(results: Results) -> list[str]:
    rows = []
    for name in DATA_SETS:
        if f"bootstrap-{name}" in results:
            one = results[f"bootstrap-{name}"]
            ratios = [
                a / b for a, b in zip(one["tenths"]["penalised"], one["tenths"]["bootstrap"], strict=True)
            ]
            rows.append(
                [
                    f"{TITLES[name]}, {one['refits']} refits",
                    *(f"{one[key]:.3f}" for key in ("bootstrap", "penalised", "interval")),
                    f"{one['penalised'] / one['bootstrap']:.2f}",
                    f"{min(ratios):.2f} to {max(ratios):.2f}",
                ]
            )
    if not rows:
        return []
    header = ["standard deviations", "of refits", "A⁻¹IA⁻¹", "of intervals", "second / first", "by tenths"]
    return table(header, rows)


def _draw(groups: dict[str, list[Value]], target: Path) -> None:
    with figure(target, 9.6, 0.9 + 0.25 * len(groups)) as drawing:
        ax, by_tenth = drawing.subplots(1, 2, width_ratios=(1.2, 1))
        for y, found in enumerate(reversed(groups.values())):
            covers = [one["cover"] for one in found]
            ax.scatter(covers, [y] * len(covers), s=12, color=GREY, alpha=0.35, linewidths=0)
            ax.scatter([fmean(covers)], [y], s=42, color=BLUE, linewidths=0, zorder=3)
        ax.axvspan(*TARGET, color=BLUE, alpha=0.1, linewidth=0)
        ax.axvline(LEVEL, color=BLUE, linewidth=1, linestyle=":")
        ax.set(yticks=range(len(groups)), xlim=(0.5, 1.01), title="true log-odds held")
        ax.set_yticklabels(list(reversed(groups)), fontsize=8.5)
        ax.set_xticks([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
        ax.set_xticklabels([f"{x:.0%}" for x in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)])
        ax.grid(axis="x")
        for title, found in groups.items():
            shares = np.mean([one["tenths"] for one in found], axis=0)
            large = "field" in title
            colour, width = (ORANGE, 1.6) if large else (GREY, 0.8)
            by_tenth.plot(range(1, 11), shares, color=colour, linewidth=width, alpha=0.8)
        by_tenth.plot([], [], color=ORANGE, label="Adult's and Bank's")
        by_tenth.plot([], [], color=GREY, linewidth=0.8, label="small fields")
        by_tenth.axhspan(*TARGET, color=BLUE, alpha=0.1, linewidth=0)
        by_tenth.set(ylim=(0.5, 1.01), title="by tenths of log-odds", xlabel="tenth, low to high")
        by_tenth.set_yticks([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
        by_tenth.set_yticklabels([f"{x:.0%}" for x in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)])
        by_tenth.legend(fontsize=8.5, loc="lower center")
        by_tenth.grid(axis="y")
