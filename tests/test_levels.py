"""Coarser tables beside those of binned features: what they are, and what they are good for."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import agglearn
from agglearn.field.field import Field
from agglearn.field.layout import Layout
from agglearn.field.levels import Levels, WidePopulation
from agglearn.field.members import Members
from agglearn.field.population import Chains
from agglearn.field.problem import make_problem
from agglearn.judge.scores import nllh
from agglearn.model.model import Model
from agglearn.tables.cells import SparseCells
from agglearn.tables.data import AggregatedData
from agglearn.train.checkpoint import Checkpoints
from agglearn.train.loop import fit
from agglearn.train.settings import FitSettings, TrainingSettings
from agglearn.trust.intervals import model_posterior

Floats = npt.NDArray[np.float64]


def some_levels() -> Levels:
    """Two numbers of 19 and 8 bins, the first with a code for missing values, and a name of three."""
    layout = Layout.plain((20, 8, 3), [(0, 1), (0, 2), (1, 2), (0,)])
    levels = Levels.of(layout, (19, 8, 0))
    assert levels is not None
    return levels


def matrix(levels: Levels) -> Floats:
    """Which wide cells each cell's weight is a sum of, found weight by weight."""
    return np.stack([levels.fold(unit) for unit in np.eye(levels.wide.n_cells)], axis=1)


def test_coarser_tables_halve_the_bins_until_there_are_few_and_leave_names_and_missing_values_alone() -> None:
    levels = some_levels()
    shapes = [cells.shape for cells in levels.wide.cells[levels.base.n_tables :]]
    # 19 bins in 10 pairs, 5 fours; a missing value has a group of its own; 8 bins stay until there are fewer
    assert shapes == [(11, 8), (6, 4), (11, 3), (6, 3), (4, 3), (11,), (6,)]
    assert levels.keys == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (3, 1), (3, 2)]
    seen = levels.lift(np.ones(levels.base.n_cells))
    first = levels.wide.table(seen, levels.base.n_tables + 5)
    assert first.tolist() == [2] * 9 + [1, 1]
    second = levels.wide.table(seen, levels.base.n_tables + 6)
    assert second.tolist() == [4] * 4 + [3, 1]


def test_there_are_none_where_no_code_is_ordered_or_bins_are_few() -> None:
    layout = Layout.plain((20, 5), [(0, 1)])
    assert Levels.of(layout, (0, 0)) is None
    assert Levels.of(layout, (0, 5)) is None
    assert Levels.of(layout, (6, 5)) is None


def test_folding_is_what_lifting_is_the_transpose_of() -> None:
    levels, rng = some_levels(), np.random.default_rng(1)
    folded = matrix(levels)
    lifted = np.stack([levels.lift(unit) for unit in np.eye(levels.base.n_cells)], axis=1)
    assert np.array_equal(folded.T, lifted)
    sets = rng.normal(size=(levels.wide.n_cells, 3)).astype(np.float32)
    assert np.allclose(levels.fold(sets), folded @ sets, atol=1e-5)


def test_a_split_is_the_least_penalised_that_adds_up() -> None:
    levels, rng = some_levels(), np.random.default_rng(2)
    variances = rng.uniform(0.1, 2.0, levels.wide.n_tables)
    weights = rng.normal(size=levels.base.n_cells)
    found = levels.split(weights, variances)
    assert np.allclose(levels.fold(found), weights)
    folded, spread = matrix(levels), np.repeat(variances, levels.wide.sizes)
    least = spread * (folded.T @ np.linalg.solve((folded * spread) @ folded.T, weights))
    assert np.allclose(found, least)


def test_the_unseen_cells_of_a_sparse_table_have_no_parents() -> None:
    cards, listed = (16, 400), np.array([0, 401, 405, 6399])
    layout = Layout(cards, ((0, 1),), (SparseCells(cards, listed),))
    levels = Levels.of(layout, (16, 0))
    assert levels is not None
    assert np.array_equal(levels.fold(np.arange(float(levels.wide.n_cells)))[-1:], [4.0])  # the rest's own
    counts = levels.lift(np.array([1.0, 2.0, 4.0, 8.0, 100.0]))
    assert [levels.wide.table(counts, t).sum() for t in (1, 2)] == [15.0, 15.0]


def test_members_are_scored_and_counted_in_all_levels_as_in_the_tables_they_are_sums_of() -> None:
    levels, rng = some_levels(), np.random.default_rng(3)
    codes = np.stack([rng.integers(0, card, 500) for card in levels.base.cards]).astype(np.uint16)
    members = Chains(levels.base, codes)
    wide = WidePopulation(members, levels)
    weights = rng.normal(size=levels.wide.n_cells)
    assert np.allclose(wide.scores(weights), members.scores(levels.fold(weights)))
    shares = wide.shares()
    for t in range(levels.wide.n_tables):
        assert levels.wide.table(shares, t).sum() == pytest.approx(1.0)


def smooth_records(rows: int, seed: int) -> dict[str, npt.NDArray[np.generic]]:
    """A label that follows two numbers smoothly, and their product."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, rows))
    b = 0.6 * a + 0.8 * b
    y = rng.random(rows) < expit(np.sin(1.5 * a) + 0.7 * a * b - 0.5)
    return {"a": a, "b": b, "name": rng.choice(["x", "y", "z"], rows), "y": y.astype(np.int64)}


def test_a_fit_with_records_is_the_penalised_logistic_over_all_levels() -> None:
    records = smooth_records(3000, 4)
    tables = agglearn.aggregate(records, "y", bins=12, tables="pairs")
    problem = make_problem(tables)
    codes = tables.schema.encode(pa.table(records))
    known = replace(problem, records=replace(Members.evenly(problem.layout, codes, 1), chance=0.0))
    run = fit(known, FitSettings(tolerance=1e-4), threads=1)
    assert run.levels is not None
    cells = np.stack(
        [
            run.problem.layout.offsets[t] + run.problem.layout.cells[t].find(codes[list(scope)])
            for t, scope in enumerate(run.problem.layout.scopes)
        ]
    )
    base = np.zeros((codes.shape[1], run.problem.layout.n_cells))
    for row in cells:
        base[np.arange(codes.shape[1]), row] = 1.0
    design = np.hstack([base @ matrix(run.levels), np.ones((len(base), 1))])
    precision = np.append(np.repeat(2 * run.state.penalties, run.levels.wide.sizes), 0.0)
    y = records["y"].astype(float)

    def loss(w: Floats) -> tuple[float, Floats]:
        s = design @ w
        value = np.logaddexp(0, s).sum() - y @ s + 0.5 * precision @ w**2
        return float(value), design.T @ (expit(s) - y) + precision * w

    best = minimize(loss, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 5000})
    # The Newton steps end when log-odds move by a hundredth of the tolerance.
    assert np.abs(design @ best.x - run.field.log_odds(codes)).max() < 0.01


def fitted(tables: AggregatedData, levels: bool) -> Field:
    return fit(make_problem(tables), FitSettings(training=TrainingSettings(levels=levels))).field


def test_a_smooth_effect_of_numbers_is_learnt_better_from_fine_bins_with_levels_than_without() -> None:
    fresh = smooth_records(20_000, 99)
    gains = []
    for seed in range(3):
        tables = agglearn.aggregate(smooth_records(4000, seed), "y", bins=20, tables="pairs")
        codes = tables.schema.encode(pa.table(fresh))
        scores = [nllh(fresh["y"] == 1, fitted(tables, levels).log_odds(codes)) for levels in (True, False)]
        gains.append(scores[0] - scores[1])
    # 0.008 to 0.012 was seen.
    assert min(gains) > 0.003


def test_threads_and_a_resumed_run_change_no_bit(tmp_path) -> None:  # type: ignore[no-untyped-def]
    problem = make_problem(agglearn.aggregate(smooth_records(2000, 5), "y", bins=16))
    settings = FitSettings(iterations=60, chains=2000)
    whole = fit(problem, settings, threads=1)

    class KilledError(Exception):
        pass

    def kill(state: object) -> None:
        if getattr(state, "iteration") == 40:  # noqa: B009
            raise KilledError

    with pytest.raises(KilledError):
        fit(problem, settings, threads=2, checkpoints=Checkpoints(tmp_path, every=0), on_iteration=kill)
    resumed = fit(problem, settings, threads=2, checkpoints=Checkpoints(tmp_path, every=0))
    assert np.array_equal(whole.field.theta, resumed.field.theta)
    assert np.array_equal(whole.field.mu, resumed.field.mu)
    assert np.array_equal(whole.state.penalties, resumed.state.penalties)


def test_a_model_keeps_its_levels_for_intervals_diagnosis_and_the_next_fit(tmp_path) -> None:  # type: ignore[no-untyped-def]
    tables = agglearn.aggregate(smooth_records(4000, 6), "y", bins=16)
    model = agglearn.fit(tables)
    assert model.levels is not None
    agglearn.save(model, tmp_path / "a.model")
    loaded = agglearn.load(tmp_path / "a.model")
    assert isinstance(loaded, Model)
    assert loaded.record.levels == model.record.levels
    fresh = pa.table(smooth_records(300, 7))
    codes = loaded.schema.encode(fresh)
    lower, upper = model_posterior(loaded).log_odds(codes)
    middle = loaded.field.log_odds(codes)
    assert (lower <= middle).all()
    assert (middle <= upper).all()
    own = agglearn.diagnose(loaded, tables)
    assert not [warning.text for warning in own.warnings if "is not what" in warning.text]
    again = agglearn.fit(tables, start_from=loaded)
    assert again.record.iterations < model.record.iterations
    moved = again.field.log_odds(codes) - middle
    assert np.sqrt(np.square(moved).mean()) < 0.1
