"""Noisy tables relieved of noise, and what fits make of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import agglearn
from agglearn import FitSettings, aggregate, fit
from agglearn.datasets import AdsLog
from agglearn.errors import TableError
from agglearn.field.denoise import _Classes, denoised
from agglearn.field.dependence import Pairs, raked, without_noise
from agglearn.field.effects import main_effects
from agglearn.field.layout import Layout
from agglearn.field.margins import is_sparse, marginal
from agglearn.field.problem import Problem, TableNoise, make_problem
from agglearn.field.shrink import multiples, shrunk
from agglearn.judge.scores import nllh
from agglearn.model.fit_report import FitReport
from agglearn.privacy.binning import private_bins
from agglearn.privacy.release import simulate
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import load
from agglearn.tables.noise import Noise
from agglearn.tables.promise import Spending
from agglearn.train.mains import with_mains
from tests.conftest import Cli
from tests.fields import pairs, random_field
from tests.records import make_records

Floats = npt.NDArray[np.float64]

LAYOUT = pairs((4, 3, 5, 3, 6))


def noisy(problem: Problem, sigma: float, seed: int = 0) -> Problem:
    """Noise on the negatives and on the positives of every cell."""
    rng = np.random.default_rng(seed)
    negatives, positives = (v + rng.normal(0, sigma, v.size) for v in (problem.d - problem.c, problem.c))
    each = np.full(problem.layout.n_tables, sigma)
    noise = TableNoise(np.sqrt(2) * each, each, each**2)
    return replace(problem, d=negatives + positives, c=positives, noise=noise)


@pytest.fixture(scope="module")
def exact() -> Problem:
    return random_field(3, LAYOUT, (0.4, 0.5), -1.0).problem(20_000, 5)


def test_exact_tables_are_left_alone(exact: Problem) -> None:
    assert denoised(exact) is exact


def test_as_the_noise_goes_to_nothing_the_tables_come_back(exact: Problem) -> None:
    clean = denoised(noisy(exact, 1e-3))
    # Raking to margins moves a cell by about the noise of a margin.
    np.testing.assert_allclose(clean.d, exact.d, atol=0.05)
    np.testing.assert_allclose(clean.c, exact.c, atol=0.05)
    assert clean.rows == pytest.approx(exact.rows, abs=0.05)
    assert clean.effects is not None
    assert (clean.effects.noisy < 1e-6).all()


def test_tables_agree_afterwards_and_hold_no_impossible_number(exact: Problem) -> None:
    clean = denoised(noisy(exact, 30.0))
    assert (clean.c >= 0).all()
    assert (clean.d >= clean.c).all()
    margins = [clean.layout.table(clean.c, t).sum(axis=1) for t in range(4)]  # of the first feature
    for margin in margins[1:]:
        np.testing.assert_allclose(margin, margins[0], rtol=1e-3, atol=0.5)


@pytest.mark.parametrize("sigma", [5.0, 30.0, 150.0])
def test_what_is_left_is_nearer_the_truth_than_the_noise(exact: Problem, sigma: float) -> None:
    given = noisy(exact, sigma)
    clean = denoised(given)

    def off(problem: Problem, which: str) -> float:
        return float(np.square(getattr(problem, which) - getattr(exact, which)).mean())

    # 0.2 to 0.6 of the squares were seen to be left.
    for which in ("d", "c"):
        assert off(clean, which) < 0.75 * off(given, which)


def test_differences_that_are_noise_vanish_and_others_stay() -> None:
    rng = np.random.default_rng(1)
    expected, variance = np.full(4000, 100.0), np.full(4000, 25.0)
    only = rng.normal(0, 5, 4000)
    assert np.square(shrunk(only, expected, variance, [4000])[0]).mean() < 0.05 * np.square(only).mean()
    truth = np.where(rng.random(4000) < 0.1, rng.normal(0, 60, 4000), 0.0)
    seen = truth + rng.normal(0, 5, 4000)
    found, unsure = shrunk(seen, expected, variance, [4000])
    # A tenth of the differences is real: an oracle would leave about a tenth of the noise's squares.
    assert np.square(found - truth).mean() < 0.3 * np.square(seen - truth).mean()
    # Squares of 4000, a tenth of them of size: their mean has a standard error of 7 %.
    assert unsure.mean() == pytest.approx(np.square(found - truth).mean(), rel=0.25)
    np.testing.assert_array_equal(shrunk(seen, expected, np.zeros(4000), [4000])[0], seen)


def test_cells_that_hold_nothing_or_many_times_what_is_expected_are_found() -> None:
    rng = np.random.default_rng(4)
    expected, variance = np.full(4000, 20.0), np.full(4000, 64.0)
    truth = expected * np.where(rng.random(4000) < 0.9, 0.0, 10.0)
    seen = truth + rng.normal(0, 8, 4000)
    off = [
        float(
            np.square(expected + shrunk(seen - expected, expected, variance, [4000], *laws)[0] - truth).mean()
        )
        for laws in ((), (multiples,))
    ]
    # Most cells are empty and are found so; the tenth that is not keeps its noise, 6.4 a cell.
    assert off[1] < 1.2 * 6.4
    assert off[0] > 0.5 * 64.0


def test_a_table_of_differences_keeps_them_among_tables_of_noise() -> None:
    rng = np.random.default_rng(2)
    sizes = [100] * 40
    truth = np.zeros(4000)
    truth[:100] = rng.normal(0, 6, 100)  # all in the first table, hardly above the noise
    seen, expected, variance = truth + rng.normal(0, 5, 4000), np.full(4000, 100.0), np.full(4000, 25.0)
    apart, together = (shrunk(seen, expected, variance, each)[0] for each in (sizes, [4000]))
    off = [float(np.square(found - truth)[:100].mean()) for found in (apart, together)]
    # The best that knows the laws leaves 36·25/(36 + 25) = 14.8 a cell, with a standard error of 2.1.
    assert off[0] < 14.8 + 3 * 2.1
    assert off[0] < off[1]
    assert np.square(apart[100:]).mean() < 0.05 * 25
    np.testing.assert_array_equal(shrunk(seen, expected, np.zeros(4000), sizes)[0], seen)


def test_tables_without_noise_keep_their_differences_among_noisy_ones() -> None:
    rng = np.random.default_rng(3)
    seen, variance = rng.normal(0, 5, 60), np.repeat([25.0, 0.0, 25.0], 20)
    found, _ = shrunk(seen, np.full(60, 100.0), variance, [20, 20, 20])
    np.testing.assert_array_equal(found[20:40], seen[20:40])
    assert (np.abs(found[:20]) < np.abs(seen[:20])).all()
    assert (np.abs(found[40:]) < np.abs(seen[40:])).all()


def test_raking_brings_a_table_to_its_margins_and_keeps_its_interaction() -> None:
    table = np.array([[4.0, 1.0], [2.0, 3.0]])
    new = raked(table, np.array([30.0, 10.0]), np.array([25.0, 15.0]))
    np.testing.assert_allclose(new.sum(axis=1), [30, 10])
    np.testing.assert_allclose(new.sum(axis=0), [25, 15])
    odds = [t[0, 0] * t[1, 1] / (t[0, 1] * t[1, 0]) for t in (table, new)]
    assert odds[1] == pytest.approx(odds[0])


def test_tables_that_are_not_plain_stay_as_they_are() -> None:
    layout = Layout.hashed((4, 5, 3), [(0, 1), (1, 2)], [7, 0])
    d = np.array([*[100.0] * 7, *[46.0] * 15])
    sigma = np.full(2, 3.0)
    problem = Problem(layout, d, d / 4, 700.0, 175.0, noise=TableNoise(sigma, sigma))
    np.testing.assert_array_equal(denoised(problem).d[:7], d[:7])


def independent_noise(data: AggregatedData, sigma: float, seed: int = 0) -> AggregatedData:
    """Noise of its own on every count and on every sum."""
    rng = np.random.default_rng(seed)
    tables = {
        scope: replace(
            one,
            counts=one.counts + rng.normal(0, sigma, one.counts.shape),
            sums=one.sums + rng.normal(0, sigma, one.sums.shape),
            noise=Noise("gaussian", sigma),
        )
        for scope, one in data.tables.items()
    }
    return replace(data, tables=tables)


@pytest.fixture(scope="module")
def listing() -> AggregatedData:
    """Tables of which some list their cells: of two features of many values, the second made of the first."""
    log = AdsLog(n_features=3, max_modalities=12, seed=1)
    codes, clicks = log.sample(20_000, 0)
    fine = np.random.default_rng(0).zipf(1.5, clicks.size) % 300
    table = log.to_table(codes, clicks).append_column("fine", pa.array(fine.astype(str)))
    data = aggregate(
        table.append_column("coarse", pa.array((fine // 3).astype(str))), "click", categorical=["*"]
    )
    assert any(is_sparse(make_problem(data).layout, t) for t in range(len(data.tables)))
    return data


@pytest.mark.parametrize(("sigma", "share"), [(3.0, 0.95), (17.0, 0.5)])  # seen: 0.85, 0.23; of sums 0.1
def test_listed_cells_are_nearer_the_truth_than_the_noise(
    listing: AggregatedData, sigma: float, share: float
) -> None:
    true, seen = make_problem(listing), make_problem(independent_noise(listing, sigma))
    clean = denoised(seen)
    for t in range(true.layout.n_tables):
        if is_sparse(true.layout, t):
            part = true.layout.part(t)
            for own, noisy_one, one in ((true.d, seen.d, clean.d), (true.c, seen.c, clean.c)):
                off, was = (np.square(v[part] - own[part])[:-1].mean() for v in (one, noisy_one))
                assert off < share * was
            assert (clean.c[part] >= 0).all()
            assert (clean.c[part] <= clean.d[part] + 1e-9).all()
            assert clean.d[part].sum() == pytest.approx(clean.rows)


def test_listed_cells_come_back_as_the_noise_goes_to_nothing(listing: AggregatedData) -> None:
    true, clean = make_problem(listing), denoised(make_problem(independent_noise(listing, 1e-3)))
    np.testing.assert_allclose(clean.d, true.d, atol=0.5)
    np.testing.assert_allclose(clean.c, true.c, atol=0.5)


def test_main_effects_of_noisy_tables_are_read_where_all_cells_are_told(listing: AggregatedData) -> None:
    problem = denoised(make_problem(independent_noise(listing, 17.0)))
    mains = with_mains(problem)
    layout = mains.layout
    for t in range(problem.layout.n_tables, layout.n_tables):
        (f,) = layout.scopes[t]
        whole = next(
            s for s, scope in enumerate(problem.layout.scopes) if f in scope and layout.cells[s].dense
        )
        told = marginal(layout, mains.c, whole, (f,))
        np.testing.assert_allclose(layout.table(mains.c, t), told, rtol=0.05, atol=0.1)


def test_noise_of_the_label_in_margins_is_known_whatever_it_was_added_to(exact: Problem) -> None:
    sigma, rng, found = 20.0, np.random.default_rng(0), []
    of_tables = np.full(exact.layout.n_tables, sigma)
    noise = TableNoise(of_tables, of_tables, 0 * of_tables)
    for _ in range(200):
        d, c = (v + rng.normal(0, sigma, v.size) for v in (exact.d, exact.c))
        classes = _Classes.of(replace(exact, d=d, c=c, noise=noise)).consistent()
        r = [b - exact.rate * (a + b) for a, b in zip(*classes.margins, strict=True)]
        found.append(np.concatenate([each - each.mean() for each in r]))
    p = exact.rate
    told = (1 - p) ** 2 * classes.left[1] + p**2 * classes.left[0] - 2 * p * (1 - p) * classes.left_shared()
    # Beside their own mean they have a little less of it.
    shares = np.array([1 - 1 / card for card in exact.layout.cards])
    seen = [part.mean() for part in np.split(np.var(found, axis=0), np.cumsum(exact.layout.cards)[:-1])]
    np.testing.assert_allclose(seen, told * shares, rtol=0.15)


def test_a_default_fit_of_private_tables_is_well_above_a_constant() -> None:
    log = AdsLog(8, 12, click_rate=0.3, seed=1)
    tables = aggregate(log.to_table(*log.sample(30_000, 2)), "click", categorical=["*"])
    codes, y = log.sample(20_000, 3)
    coded = tables.schema.encode(log.to_table(codes, y))
    settings = FitSettings(chains=3000)
    scores = {
        epsilon: nllh(y == 1, fit(simulate(tables, epsilon, seed=4), settings).field.log_odds(coded))
        for epsilon in (1.0, 10.0)
    }
    whole = nllh(y == 1, fit(tables, settings).field.log_odds(coded))
    assert 0.3 * whole < scores[1.0] < scores[10.0] < whole + 0.01


def test_what_many_pairs_share_is_found_where_no_single_table_shows_it() -> None:
    rng = np.random.default_rng(2)
    group = rng.integers(0, 3, 20_000)  # twelve features that follow one hidden group
    codes = np.where(rng.random((12, 20_000)) < 0.5, group, rng.integers(0, 4, (12, 20_000)))
    layout = pairs((4,) * 12)
    known = Pairs(layout, tuple(range(layout.n_tables)))
    exact = np.concatenate(
        [np.bincount(4 * codes[f] + codes[g], minlength=16).astype(float) for f, g in known.scopes]
    )
    margins = [np.bincount(row, minlength=4).astype(float) for row in codes]
    noise = rng.normal(0, 300.0, exact.size)
    drawn = [t - t.mean(0) - t.mean(1, keepdims=True) + t.mean() for t in known.apart(noise)]
    noisy_pairs = exact + np.concatenate([t.reshape(-1) for t in drawn])
    variance = np.full(exact.size, 300.0**2)
    found, unsure = without_noise(known, noisy_pairs, variance, margins)
    expected = known.of_margins(margins)
    rest, _ = shrunk(noisy_pairs - expected, expected, variance * known.freedom, known.sizes, multiples)
    alone = known.raked(np.maximum(expected + rest, 0.0), margins)
    off = [np.square(estimate - exact).mean() for estimate in (found, alone)]
    # The hidden group is two numbers a value: 24 to find among 66 · 9 differences.
    assert off[0] < 0.5 * off[1]
    assert (unsure >= 0).all()
    assert (unsure <= 300.0**2).all()


def test_margins_are_what_conditioning_all_numbers_at_once_gives() -> None:
    rng = np.random.default_rng(3)
    cards, n = (4, 5, 3), 12
    x = rng.normal(size=(400, n))
    h = x.T @ x
    noise = rng.uniform(500, 5000, n)
    truth = h @ rng.normal(0, 0.3, n) + np.linalg.cholesky(h) @ rng.normal(size=n)
    g = truth + rng.normal(0, np.sqrt(noise))
    clean, effects = main_effects(g, h, noise, np.zeros((n, n)), cards)
    s = np.repeat(effects.variances, cards)
    exact = h @ np.diag(s) @ h + h  # the covariance of exact margins, and with noise of the noisy ones
    both = np.block([[exact, exact], [exact, exact + np.diag(noise)]])
    np.testing.assert_allclose(clean, both[:n, n:] @ np.linalg.solve(both[n:, n:], g), rtol=1e-5)
    # A fit with the penalties 1/s to that is the posterior mean of the effects, given the noisy margins.
    theta = np.linalg.solve(h + np.diag(1 / s), clean)
    np.testing.assert_allclose(theta, s * (h @ np.linalg.solve(exact + np.diag(noise), g)), rtol=1e-4)


def test_as_the_budget_grows_so_do_the_bins() -> None:
    def bins(records: float, features: int, scale: float) -> int:
        return private_bins(records, features, Spending("tables", "gaussian", scale, 0, 91, 1, 1.0))

    found = [bins(30_000, 14, scale) for scale in (400.0, 120.0, 40.0, 12.0, 1.0)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (5, 20)  # no fewer than that; and no more than exact tables have
    # (μ²n²/D)^⅕ at μ = √91/40: 34 or a little less, of which 0.45 are taken.
    assert found[2] == round(0.45 * ((91**0.5 / 40) ** 2 * 30_000**2 / 14) ** 0.2)
    assert bins(300, 14, 40.0) == 5


@pytest.fixture(scope="module")
def tables() -> AggregatedData:
    return aggregate(make_records(3000), "bought", positive="yes", exclude=["id"])


def test_denoised_tables_agree_are_possible_and_marked(
    tables: AggregatedData, run_cli: Cli, tmp_path: Path
) -> None:
    agglearn.save(simulate(tables, 1.0, seed=1), tmp_path / "noisy.agg")
    run = run_cli("denoise", tmp_path / "noisy.agg", "-o", tmp_path / "clean.agg", "--json")
    assert (run.code, run.json["tables"]) == (0, 3)
    clean = load(tmp_path / "clean.agg")
    assert isinstance(clean, AggregatedData)
    assert clean.denoised
    for scope, table in clean.tables.items():
        assert table.noise is None
        assert (table.sums >= 0).all()
        assert (table.sums <= table.counts[None] * (1 + 1e-9)).all()
        np.testing.assert_allclose(table.counts.sum(), clean.rows, rtol=1e-3, err_msg=str(scope))
    report = agglearn.check(clean)
    assert report.ok
    assert "noise taken out" in {note.kind for note in report.notes}
    fitted = FitReport.of(fit(clean, FitSettings(chains=200, iterations=30)).record)
    assert "noise taken out" in {note.cause for note in fitted.document().warnings}
    with pytest.raises(TableError, match="nothing to take out"):
        agglearn.denoise(clean)
    other = agglearn.denoise(simulate(tables, 1.0, seed=2))
    assert (clean + other).denoised


def test_a_fit_says_that_it_may_be_no_better_than_a_constant(tables: AggregatedData) -> None:
    def causes(epsilon: float) -> set[str | None]:
        model = fit(simulate(tables, epsilon, seed=1), FitSettings(chains=500))
        return {note.cause for note in FitReport.of(model.record).document().warnings}

    assert "no better than a constant" in causes(0.05)
    assert "no better than a constant" not in causes(10.0)


def test_noise_that_nobody_declared_is_named(tables: AggregatedData) -> None:
    private = simulate(tables, 2.0, seed=1)
    sigma = next(t.noise.sigma for t in private.tables.values() if t.noise)
    shown = {}
    for scope, t in private.tables.items():
        sums = np.maximum(t.sums, 0)
        shown[scope] = replace(t, counts=np.maximum(t.counts, sums[0]), sums=sums, noise=None)
    silent = replace(private, tables=shown, promise=None)
    [problem, *_] = [p for p in agglearn.check(silent).problems if p.kind == "margin"]
    assert "noise of standard deviation" in problem.remedy
    model = fit(silent, FitSettings(chains=200, iterations=30))
    # A count has √2 times the noise of a class, and numbers that were made possible have less.
    assert 0.4 * sigma < model.record.used["undeclared"]["implied"] < 2 * sigma
    assert model.record.used["undeclared"]["declared"] is None
    assert "undeclared" not in fit(tables, FitSettings(chains=200, iterations=30)).record.used
    assert "undeclared" not in fit(private, FitSettings(chains=200, iterations=30)).record.used
