"""Records without labels, labelled samples, earlier models: what a fit takes beside tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression

import agglearn
from agglearn import FitSettings
from agglearn.errors import InputError
from agglearn.field.engines.mixture import MixtureEngine, open_mixture
from agglearn.field.engines.protocol import EngineOptions
from agglearn.field.field import Field
from agglearn.field.information import Information
from agglearn.field.members import Members
from agglearn.field.population import Chains, Population
from agglearn.field.rake import BOUND, rake
from agglearn.field.shared import Shared
from agglearn.field.start import tree_start
from agglearn.model.format import load_model, save_model
from agglearn.runtime.random import Numbers, Use
from agglearn.tables.format import save
from agglearn.train.loop import fit as fit_problem
from agglearn.train.settings import TrainingSettings
from tests.fields import cells_of, columns, pairs, problem_of, random_field, tables_of, with_noise

TIGHT = FitSettings(lambda_theta=2.0, tolerance=0.0)


def three_way(rows: int, seed: int = 0) -> tuple[Any, Any]:
    """Records whose X has a structure among three features that no pair shows, and whose label follows it."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (rows, 4))
    copied = rng.random(rows) < 0.8
    codes[copied, 2] = (codes[copied, 0] + codes[copied, 1]) % 3
    score = 1.5 * (codes[:, 0] == codes[:, 3]) + 1.0 * (codes[:, 2] == 1) - 1.2 * (codes[:, 1] == codes[:, 2])
    return codes.astype(np.uint16), (rng.random(rows) < 1 / (1 + np.exp(-score))).astype(np.uint8)


def one_hot(layout: Any, codes: Any) -> Any:
    found = np.zeros((len(codes), layout.n_cells))
    for cells in cells_of(layout, codes):
        found[np.arange(len(codes)), cells] = 1
    return found


# --- the law of records -----------------------------------------------------------------------------------


def test_members_of_equal_weight_are_chains() -> None:
    codes, _ = three_way(300)
    layout = pairs((3, 3, 3, 3))
    columns_first = np.ascontiguousarray(codes.T)
    laws: list[Population] = [Chains(layout, columns_first), Members.evenly(layout, columns_first)]
    theta = np.random.default_rng(1).normal(size=layout.n_cells)
    p = [law.map(np.tanh, law.scores(theta, 0.3)) for law in laws]
    np.testing.assert_allclose(laws[0].cells(p[0]), laws[1].cells(p[1]))
    np.testing.assert_allclose(laws[0].shares(), laws[1].shares())
    assert laws[0].mean(p[0]) == pytest.approx(laws[1].mean(p[1]))
    assert laws[0].size == pytest.approx(laws[1].size)
    assert laws[0].moments(p[0]).variance_of_mean == pytest.approx(laws[1].moments(p[1]).variance_of_mean)


def test_a_member_of_weight_two_is_two_members() -> None:
    codes, _ = three_way(100)
    weights = np.random.default_rng(0).integers(1, 4, 100)
    layout = pairs((3, 3, 3, 3))
    repeated = Chains(layout, np.ascontiguousarray(np.repeat(codes, weights, axis=0).T))
    weighted = Members(layout, np.ascontiguousarray(codes.T), weights / weights.sum())
    theta = np.random.default_rng(1).normal(size=(layout.n_cells, 2)).astype(np.float32)
    for one, other in (
        (repeated.shares(), weighted.shares()),
        (repeated.cells(repeated.scores(theta)), weighted.cells(weighted.scores(theta))),
        (repeated.mean(repeated.scores(theta)), weighted.mean(weighted.scores(theta))),
        (repeated.some(60).mean(axis=1), weighted.some(60).mean(axis=1)),
    ):
        # Sets are float32; 60 of them evenly chosen are within one of what their weight asks for.
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=0.15 if one.shape == (4,) else 1e-6)


def test_what_tables_share_is_an_inverse_where_nothing_else_is() -> None:
    """For main effects alone the preconditioner is the inverse, and conjugate gradients end at once."""
    codes, _ = three_way(2_000)
    layout = replace(pairs((3, 3, 3, 3)))
    members = Members.evenly(layout, np.ascontiguousarray(codes.T))
    field = Field(layout, np.zeros(layout.n_cells), np.zeros(layout.n_cells), -0.3)
    information = Information(members, field, 2_000.0)
    rho = np.full(layout.n_cells, 3.0)
    right = np.random.default_rng(0).normal(size=(layout.n_cells + 1, 1)).astype(np.float32)
    counts = []
    for shared in (False, True):
        calls = 0
        times = information.times

        def counted(shifts: Any, times: Any = times) -> Any:
            nonlocal calls
            calls += 1
            return times(shifts)

        information.times = counted  # type: ignore[method-assign]
        found = information.solve(right, rho, 1e-4, shared=shared)
        information.times = times  # type: ignore[method-assign]
        counts.append(calls)
        residual = information.times(found) + np.append(rho, 0.0)[:, None] * found - right
        assert np.abs(residual).max() < 0.02  # of numbers of the order of 1, in float32
    assert counts[1] < counts[0]
    diagonal = np.append(information.diagonal(), information.total)
    apply = Shared(members, information._weights, diagonal, rho)
    a, b = (np.random.default_rng(k).normal(size=(layout.n_cells + 1, 1)) for k in (1, 2))
    assert (a.T @ apply(b)).item() == pytest.approx((b.T @ apply(a)).item())  # symmetric, as it must be
    assert (a.T @ apply(a)).item() > 0


# --- all records ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [0.5, 20.0])
def test_with_all_records_the_fit_is_the_logistic_from_c_alone(penalty: float) -> None:
    codes, y = three_way(3_000)
    layout = pairs((3, 3, 3, 3))
    records = Members(layout, np.ascontiguousarray(codes.T), np.full(len(codes), 1 / len(codes)), chance=0.0)
    problem = replace(problem_of(layout, codes, y), records=records)
    found = fit_problem(problem, replace(TIGHT, lambda_theta=penalty))
    rival = LogisticRegression(C=1 / (2 * penalty), solver="newton-cholesky", tol=1e-12, max_iter=200)
    rival.fit(one_hot(layout, codes), y)
    # Both stop where a step moves nothing: their own precision, in weights of the order of 1.
    np.testing.assert_allclose(found.field.theta, rival.coef_[0], atol=1e-7)
    assert found.field.intercept == pytest.approx(rival.intercept_[0], abs=1e-7)


def test_records_remove_the_bias_of_maximum_entropy() -> None:
    codes, y = three_way(20_000)
    tables = tables_of(pairs((3, 3, 3, 3)), codes, y)
    test_codes, test_y = three_way(20_000, seed=1)

    def loss(model: agglearn.Model) -> float:
        s = model.field.log_odds(np.ascontiguousarray(test_codes.T))
        return float(np.mean(np.logaddexp(0, s) - test_y * s))

    settings = FitSettings(lambda_theta=2.0)
    alone = agglearn.fit(tables, settings)
    known = agglearn.fit(tables, settings, records=columns(codes))
    rival = LogisticRegression(C=0.25, tol=1e-10, max_iter=1_000).fit(one_hot(pairs((3, 3, 3, 3)), codes), y)
    best = -np.mean(
        rival.predict_log_proba(one_hot(pairs((3, 3, 3, 3)), test_codes))[np.arange(20_000), test_y]
    )
    assert loss(known) == pytest.approx(best, abs=1e-6)
    assert loss(alone) > loss(known) + 0.001
    assert known.record.used["records"]["same"]


def test_penalties_are_found_by_table_with_records_too() -> None:
    codes, y = three_way(5_000)
    tables = tables_of(pairs((3, 3, 3, 3)), codes, y)
    model = agglearn.fit(tables, records=columns(codes))
    assert model.record.stopped_because == "at rest"
    assert model.record.mains == 4
    assert np.ptp(model.record.penalties) > 0
    single = agglearn.fit(
        tables, FitSettings(training=TrainingSettings(prior="single")), records=columns(codes)
    )
    assert np.ptp(single.record.penalties) == 0


def test_the_label_of_the_records_is_never_looked_at(tmp_path: Path) -> None:
    codes, y = three_way(2_000)
    tables = tables_of(pairs((3, 3, 3, 3)), codes, y)
    plain = agglearn.fit(tables, records=columns(codes))
    with_label = agglearn.fit(tables, records=columns(codes, np.array(["nonsense"] * len(y))))
    np.testing.assert_array_equal(plain.field.theta, with_label.field.theta)
    used = [model.record.used["records"]["labelled"] for model in (plain, with_label)]
    assert used == [False, True]


def test_records_are_read_from_any_source_a_batch_at_a_time(tmp_path: Path) -> None:
    codes, y = three_way(1_000)
    tables = tables_of(pairs((3, 3, 3, 3)), codes, y)
    table = pa.table(columns(codes))
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=100)
    (tmp_path / "x.csv").write_text(
        "\n".join([",".join(table.column_names), *(",".join(f"v{v}" for v in row) for row in codes)])
    )
    models = [
        agglearn.fit(tables, TIGHT, records=r) for r in (table, tmp_path / "x.parquet", tmp_path / "x.csv")
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.field.theta, models[0].field.theta)


def test_the_fit_does_not_depend_on_threads_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    codes, y = three_way(3_000)
    tables = tables_of(pairs((3, 3, 3, 3)), codes, y)
    few = columns(codes[:900])
    for records in (columns(codes), few):
        one, two = (agglearn.fit(tables, records=records, threads=n) for n in (1, 2))
        np.testing.assert_array_equal(one.field.theta, two.field.theta)

    class Stop(Exception):  # noqa: N818
        pass

    def stop(state: Any) -> None:
        if state.iteration == 25:
            raise Stop

    from agglearn.train.checkpoint import Checkpoints

    whole = agglearn.fit(tables, FitSettings(iterations=60), records=few)
    with pytest.raises(Stop):
        agglearn.fit(
            tables,
            FitSettings(iterations=60),
            records=few,
            on_iteration=stop,
            checkpoints=Checkpoints(tmp_path / "c", every=0.0),
        )
    resumed = agglearn.fit(
        tables, FitSettings(iterations=60), records=few, checkpoints=Checkpoints(tmp_path / "c", every=0.0)
    )
    np.testing.assert_array_equal(whole.field.theta, resumed.field.theta)
    with pytest.raises(agglearn.AgglearnError, match="of a run on other tables"):
        agglearn.fit(
            tables,
            FitSettings(iterations=60),
            records=columns(codes[:901]),
            checkpoints=Checkpoints(tmp_path / "c", every=0.0),
        )


def test_noisy_tables_with_records_are_better_than_without() -> None:
    codes, y = three_way(20_000)
    tables = with_noise(tables_of(pairs((3, 3, 3, 3)), codes, y), "gaussian", 60.0, 60.0)
    test_codes, test_y = three_way(20_000, seed=1)
    losses = []
    for records in (None, columns(codes)):
        s = agglearn.fit(tables, records=records).field.log_odds(np.ascontiguousarray(test_codes.T))
        losses.append(float(np.mean(np.logaddexp(0, s) - test_y * s)))
    assert losses[1] < losses[0] + 0.0005


# --- some of them -----------------------------------------------------------------------------------------


def test_the_more_records_the_better_and_few_do_no_harm() -> None:
    codes, y = three_way(20_000)
    tables = tables_of(pairs((3, 3, 3, 3)), codes, y)
    test_codes, test_y = three_way(40_000, seed=1)
    losses = []
    for rows in (0, 200, 2_000, 20_000):
        records = columns(codes[:rows]) if rows else None
        s = agglearn.fit(tables, records=records).field.log_odds(np.ascontiguousarray(test_codes.T))
        losses.append(float(np.mean(np.logaddexp(0, s) - test_y * s)))
    # Chains leave a spread of 0.0002 over seeds.
    assert all(after < before + 0.0006 for before, after in pairwise(losses)), losses
    assert losses[-1] < losses[0] - 0.001


def test_cells_of_few_records_are_left_to_the_chains() -> None:
    """One value is rare, and the records that have it are of odd others: they tell nothing of its rate."""
    codes, y = three_way(4_000)
    codes[:, 0] = np.where(np.arange(len(codes)) % 100 == 0, 2, codes[:, 0] % 2)
    layout = pairs((3, 3, 3, 3))
    problem = problem_of(layout, codes, y)
    few = codes[1:1_200]  # 11 of them have the rare value
    members = Members.evenly(layout, np.ascontiguousarray(few.T))
    options = EngineOptions(chains=2_000, first_chains=2_000, numbers=Numbers(0, Use.TRAIN), threads=1)
    engine, mu = open_mixture(replace(problem, records=members), tree_start, options)
    assert isinstance(engine, MixtureEngine)
    # Weights under which the records' rates are far from the chains': their third feature is another law's.
    theta = 3.0 * np.random.default_rng(0).normal(size=layout.n_cells)
    for iteration in range(11):
        engine.expect(Field(layout, mu, theta, -0.3), iteration)
    trust, count = engine.get_state()["trust"][:-1], members.shares() * 1_199
    assert (trust[count >= 20] > 0).any()
    assert (trust[count < 20] == 0).all()


def test_records_of_another_sample_are_weighted_to_the_tables() -> None:
    field = random_field(3, (4, 5, 3))
    codes, y = field.draw(20_000, seed=1)
    problem = problem_of(field.layout, codes, y)
    others, _ = field.draw(8_000, seed=2)
    keep = np.random.default_rng(0).random(8_000) < np.where(others[:, 0] == 0, 1.0, 0.4)  # of another kind
    members = Members.evenly(field.layout, np.ascontiguousarray(others[keep].T))
    raked = rake(problem, members)
    before, after = (
        np.abs(law.shares() - problem.d / problem.rows).max() for law in (members, raked.members)
    )
    assert after < before / 5
    assert np.nanmax(raked.distances) > 10
    assert 1 < raked.greatest <= BOUND
    assert not raked.same
    kept = rake(problem, members, weigh=False)
    assert kept.members.even


def test_how_far_counts_differ_tells_what_records_are_of_the_tables() -> None:
    """κ is 1 − m/n for a part of the records behind the tables, and 1 + m/n for as many others."""
    field = random_field(5, (5, 6, 4, 5))
    codes, y = field.draw(10_000, seed=1)
    problem = problem_of(field.layout, codes, y)
    others, _ = field.draw(5_000, seed=2)
    part = rake(problem, Members.evenly(field.layout, np.ascontiguousarray(codes[::2].T))).members.chance
    apart = rake(problem, Members.evenly(field.layout, np.ascontiguousarray(others.T))).members.chance
    # Six tables of about 100 degrees of freedom in all: the mean of χ² errs by a seventh.
    assert part == pytest.approx(0.5, rel=0.4)
    assert apart == pytest.approx(1.5, rel=0.4)


# --- what a model keeps -----------------------------------------------------------------------------------


def test_a_model_is_judged_by_the_records_it_keeps_and_gives_none_of_them_out(
    tmp_path: Path, run_cli: Any
) -> None:
    codes, y = three_way(4_000)
    tables = tables_of(pairs((3, 3, 3, 3)), codes, y)
    valid = tables_of(pairs((3, 3, 3, 3)), *three_way(4_000, seed=1))
    model = agglearn.fit(tables, FitSettings(lambda_theta=2.0), records=columns(codes))
    save_model(model, tmp_path / "r.model")
    back = load_model(tmp_path / "r.model")
    assert back.still
    assert back.record.used == model.record.used
    score = agglearn.score_tables(back, valid)
    test_codes, test_y = three_way(4_000, seed=1)
    s = model.field.log_odds(np.ascontiguousarray(test_codes.T))
    rate = test_y.mean()
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    true = 1 - np.mean(np.logaddexp(0, s) - test_y * s) / entropy
    assert abs(score.nllh - true) < 4 * max(score.records_se, 1e-4)
    assert agglearn.diagnose(back, tables).mixing.sweeps == 0
    run = run_cli("sample", tmp_path / "r.model", "-n", 10, "-o", tmp_path / "s.csv")
    assert run.code == 2
    assert "would give those out" in run.err
    forgetful = agglearn.fit(tables, records=columns(codes), keep_records=False)
    assert forgetful.chains is None
    with pytest.raises(InputError, match="keeps none, so it has no law of X"):
        agglearn.score_tables(forgetful, valid)


# --- labelled records -------------------------------------------------------------------------------------


def test_validation_records_score_as_the_records_do(tmp_path: Path, run_cli: Any) -> None:
    codes, y = three_way(4_000)
    tables = tables_of(pairs((3, 3, 3, 3)), codes, y)
    judged, labels = three_way(500, seed=2)
    save(tables, tmp_path / "t.agg")
    table = pa.table(columns(judged, labels))
    pq.write_table(table, tmp_path / "v.parquet")
    run = run_cli(
        "fit", tmp_path / "t.agg", "-o", tmp_path / "m.model", "--valid", tmp_path / "v.parquet", "--json"
    )
    assert run.code == 0
    exact = run_cli("evaluate", tmp_path / "m.model", tmp_path / "v.parquet", "--json").json["nllh"]
    assert run.json["valid_nllh"] == pytest.approx(exact, abs=1e-9)
    chosen = agglearn.fit(tables, FitSettings(lambda_theta="auto"), valid=table)
    assert chosen.record.choice is not None
    known = agglearn.fit(tables, FitSettings(lambda_theta="auto"), valid=table, records=columns(codes))
    assert known.record.choice is not None
    assert len(known.record.choice.path) > 2  # it has looked around


def test_a_labelled_sample_is_added_to_the_tables() -> None:
    codes, y = three_way(3_000)
    layout = pairs((3, 3, 3, 3))
    both = agglearn.fit(tables_of(layout, codes, y), TIGHT, records=columns(codes))
    parts = agglearn.fit(
        tables_of(layout, codes[500:], y[500:]),
        TIGHT,
        records=columns(codes),
        labelled=columns(codes[:500], y[:500]),
    )
    assert parts.rows == both.rows
    np.testing.assert_allclose(parts.field.theta, both.field.theta, atol=1e-9)


# --- earlier models ---------------------------------------------------------------------------------------


def test_the_next_days_fit_is_there_in_a_fifth_of_the_iterations() -> None:
    field = random_field(7, (6, 5, 4, 3, 4), 0.4)
    days = [field.tables(20_000, seed) for seed in (1, 2)]
    first, cold = (agglearn.fit(day, threads=1) for day in days)
    short = FitSettings(iterations=cold.record.iterations // 5)
    warm = agglearn.fit(days[1], short, start_from=first, threads=1)
    states = np.ascontiguousarray(field.states.T)

    def loss(model: agglearn.Model) -> float:
        s = model.field.log_odds(states)
        return float(field.law[:, 0] @ np.logaddexp(0, s) + field.law[:, 1] @ np.logaddexp(0, -s))

    # Chains leave a spread of 0.0001 over seeds; from nothing so few iterations are 0.003 worse.
    assert loss(warm) < loss(cold) + 0.0005
    assert warm.record.used["from"] == {"rows": 20_000, "new": {}, "gone": {}}


def test_new_values_begin_at_nothing_and_vanished_ones_are_dropped() -> None:
    rng = np.random.default_rng(0)

    def records(values: list[str]) -> dict[str, Any]:
        x = rng.choice(values, 3_000)
        z = rng.choice(["u", "v"], 3_000)
        return {"x": x, "z": z, "y": (rng.random(3_000) < np.where(x == "b", 0.7, 0.3)).astype(int)}

    old = agglearn.fit(agglearn.aggregate(records(["a", "b", "gone"]), "y"))
    new_tables = agglearn.aggregate(records(["a", "b", "new"]), "y")
    warm = agglearn.fit(new_tables, start_from=old)
    assert warm.record.used["from"]["new"] == {"x": ("new",)}
    assert warm.record.used["from"]["gone"] == {"x": ("gone",)}
    cold = agglearn.fit(new_tables)
    asked = pa.table({"x": ["a", "b", "new"], "z": ["u"] * 3})
    p = [1 / (1 + np.exp(-m.field.log_odds(m.schema.encode(asked)))) for m in (warm, cold)]
    np.testing.assert_allclose(p[0], p[1], atol=0.02)  # of rates that 500 records tell to 0.02


def test_a_prior_pulls_to_the_old_weights() -> None:
    field = random_field(8, (4, 5, 3), 0.6)
    old = agglearn.fit(field.tables(50_000, 1), FitSettings(lambda_theta=1.0, engine="exact"))
    few = field.tables(300, 2)
    settings = FitSettings(lambda_theta=5.0, engine="exact")
    alone = agglearn.fit(few, settings)
    pulled = agglearn.fit(few, settings, prior=old)
    hard = agglearn.fit(few, replace(settings, iterations=2_000, tolerance=0.0), prior=old, prior_weight=1e5)
    np.testing.assert_allclose(hard.field.theta, old.field.theta, atol=0.01)
    states = np.ascontiguousarray(field.states.T)

    def loss(model: agglearn.Model) -> float:
        s = model.field.log_odds(states)
        return float(field.law[:, 0] @ np.logaddexp(0, s) + field.law[:, 1] @ np.logaddexp(0, -s))

    assert loss(pulled) < loss(alone) - 0.005
    by_table = agglearn.fit(few, FitSettings(engine="exact"), prior=old)
    assert loss(by_table) < loss(alone) - 0.005


def test_a_prior_with_records_is_a_logistic_with_an_offset() -> None:
    codes, y = three_way(2_000)
    layout = pairs((3, 3, 3, 3))
    old = agglearn.fit(tables_of(layout, *three_way(3_000, seed=5)), TIGHT)
    tables = tables_of(layout, codes, y)
    found = agglearn.fit(tables, TIGHT, records=columns(codes), prior=old)
    x = one_hot(layout, codes)
    gradient = x.T @ (1 / (1 + np.exp(-(x @ found.field.theta + found.field.intercept))) - y)
    gradient += 2 * 2.0 * (found.field.theta - old.field.theta)
    np.testing.assert_allclose(gradient, 0, atol=1e-5)  # of 2,000 records


# --- bad input --------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    codes, y = three_way(500)
    save(tables_of(pairs((3, 3, 3, 3)), codes, y), tmp_path / "t.agg")
    pq.write_table(pa.table(columns(codes)), tmp_path / "x.parquet")
    pq.write_table(pa.table(columns(codes)).drop_columns(["f2"]), tmp_path / "lacking.parquet")
    strange = {name: [f"w{v}" for v in values] for name, values in columns(codes).items()}
    pq.write_table(pa.table(strange), tmp_path / "strange.parquet")
    alike = columns(np.zeros((500, 4), int))
    alike["f0"][:5] = ["v1"] * 5
    alike["f0"][5:9] = ["v2"] * 4
    for name in ("f1", "f2", "f3"):
        alike[name][:3] = ["v1", "v2", "v1"]
    pq.write_table(pa.table(alike), tmp_path / "alike.parquet")
    other = agglearn.aggregate({"g": ["a", "b"] * 50, "y": [0, 1, 1, 0] * 25}, "y")
    save_model(agglearn.fit(other, FitSettings(engine="exact", iterations=5)), tmp_path / "other.model")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--records", "lacking.parquet"], "column 'f2' is not in the records"),
        (["--records", "strange.parquet"], "no record has values that the tables know"),
        (["--records", "alike.parquet"], "the records are too far from the tables to be weighted to them"),
        (["--prior", "other.model"], "the prior is of other features than the tables"),
        (["--from", "other.model"], "the model to begin from is of other features than the tables"),
        (["--prior", "other.model", "--prior-weight", "0"], "--prior-weight 0 must be above 0"),
        (["--prior-weight", "2"], "--prior-weight needs a --prior"),
        (["--valid", "x.parquet"], "label 'y' is not in the records"),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_what_cannot_be_used_is_one_line_and_nothing_is_written(
    folder: Path, run_cli: Any, options: list[str], message: str
) -> None:
    run = run_cli("fit", "t.agg", "-o", "m.model", *options)
    assert run.code == 2
    assert run.err.splitlines()[-1].startswith(f"agglearn: {message}")
    assert not (folder / "m.model").exists()
    assert not list(folder.glob(".m.model*"))


def test_records_that_are_read_are_counted_for_who_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, float | None, bool, float]] = []

    @contextmanager
    def watched(what: str, total: float | None = None, *, show: bool) -> Iterator[Callable[[float], None]]:
        yield lambda amount: seen.append((what, total, show, amount))

    monkeypatch.setattr("agglearn.model.given.meter", watched)
    codes, y = three_way(500)
    tables = tables_of(pairs((3, 3, 3, 3)), codes, y)
    agglearn.fit(tables, TIGHT, records=columns(codes), show_progress=True)
    assert {(what, total, show) for what, total, show, _ in seen} == {("reading records", 500, True)}
    assert sum(amount for *_, amount in seen) == 500
