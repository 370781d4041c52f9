"""Models judged on tables of other records: the score, beside enumerations and records, and calibration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit
from scipy.stats import kstest

import agglearn
from agglearn.datasets import load_adult
from agglearn.errors import InputError
from agglearn.field.field import Field
from agglearn.field.layout import Layout
from agglearn.field.population import Chains, Enumeration
from agglearn.field.problem import Problem, TableNoise
from agglearn.field.states import States
from agglearn.judge.scores import score_predictions
from agglearn.model.format import save_model
from agglearn.model.model import Model
from agglearn.records.split import assign
from agglearn.tables.data import AggregatedData
from agglearn.train.settings import FitSettings
from agglearn.trust.calibration import Calibration, calibrate
from tests.conftest import Cli
from tests.fields import (
    KnownField,
    columns,
    count,
    every_state,
    problem_of,
    random_field,
    random_problem,
    schema_of,
    with_noise,
)

CARDS = (4, 3, 5, 3)


def nllh_of(known: KnownField, model: Model) -> float:
    """NLLH of a model on infinitely many records of a field."""
    s = model.field.log_odds(np.ascontiguousarray(known.states.T))
    rate = known.law.sum(axis=0)
    losses = np.column_stack([np.logaddexp(0, s), np.logaddexp(0, -s)])
    return float(1 + np.sum(known.law * losses) / (rate @ np.log(rate)))


@pytest.fixture(scope="module")
def known() -> KnownField:
    return random_field(1, CARDS, 0.4, -0.7)


@pytest.fixture(scope="module")
def train(known: KnownField) -> AggregatedData:
    return known.tables(20_000, 0)


@pytest.fixture(scope="module")
def model(train: AggregatedData) -> Model:
    return agglearn.fit(train, FitSettings(lambda_theta=2.0))


# --- the score --------------------------------------------------------------------------------------------


def test_on_data_of_a_pairwise_field_the_score_is_unbiased_within_its_standard_error(
    known: KnownField,
) -> None:
    z = []
    for k in range(12):
        tables = known.tables(10_000, 2 * k)
        fitted = agglearn.fit(tables, FitSettings(lambda_theta=2.0, seed=k))
        score = agglearn.score_tables(fitted, known.tables(2_000, 2 * k + 1), seed=k)
        z.append((score.nllh - nllh_of(known, fitted)) / score.nllh_se)
    # Twelve draws of a standard normal: their mean is within 3/√12, their standard deviation tells 1 within
    # a fifth, of which three are allowed.
    assert abs(np.mean(z)) < 3 / np.sqrt(12)
    assert 0.4 < np.std(z, ddof=1) < 1.6


def test_on_adult_the_score_is_that_of_the_records_and_ranks_the_penalties(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGGLEARN_DATA", str(shared_data))
    records, _ = load_adult()
    parts = agglearn.aggregate_split(
        records, "income", positive=">50K", bins=10, split={"valid": 0.2}, seed=1
    ).parts
    valid = records.filter(assign(0, records.num_rows, 1, {"valid": 0.2}) == 1)
    codes, y = parts["train"].schema.encode(valid), parts["train"].schema.encode_labels(valid)[0]
    assert parts["valid"].rows == len(y)
    truth, scores = [], []
    for lambda_theta in (4.0, 16.0, 256.0):
        fitted = agglearn.fit(parts["train"], FitSettings(lambda_theta=lambda_theta))
        truth.append(score_predictions(y, fitted.field.log_odds(codes)).nllh)
        scores.append(agglearn.score_tables(fitted, parts["valid"]).nllh)
    # Over five splits the mean errors were −0.008, +0.004 and +0.003 (docs/tables-only.md); this split adds
    # the chance of its own records, standard errors of 0.004, 0.003 and 0.001.
    np.testing.assert_allclose(scores, truth, atol=0.01)
    assert np.argsort(scores).tolist() == np.argsort(truth).tolist()


def test_the_score_does_not_depend_on_threads_and_follows_its_seed(
    model: Model, train: AggregatedData, known: KnownField
) -> None:
    valid = known.tables(3_000, 1)
    one, two, other = (
        agglearn.score_tables(model, valid, threads=threads, seed=seed)
        for threads, seed in ((1, 0), (2, 0), (2, 1))
    )
    assert one == two
    assert other.nllh != one.nllh
    assert other.nllh == pytest.approx(one.nllh, abs=6 * one.chains_se)


def test_a_classifier_and_a_field_fitted_by_enumeration_are_scored_alike(
    train: AggregatedData, model: Model, known: KnownField
) -> None:
    valid = known.tables(3_000, 1)
    by_chains = agglearn.score_tables(model, valid)
    classifier = agglearn.MaxEntClassifier(lambda_theta=2.0, engine="exact").fit(train)
    assert classifier.model_.chains is None
    by_draws = agglearn.score_tables(classifier, valid)
    # Two fits of one optimum: predictions differ by the chains' noise in training, a few hundredths.
    assert by_draws.nllh == pytest.approx(by_chains.nllh, abs=0.003)
    assert agglearn.score_tables(classifier.model_, valid) == by_draws


def test_another_fields_law_of_x_can_be_averaged_over(
    train: AggregatedData, model: Model, known: KnownField
) -> None:
    smooth = agglearn.fit(train, FitSettings(lambda_theta=3_000.0))
    # The loss of weights four times as large is bent enough for the law of X to matter.
    weights = replace(smooth.field, theta=4 * smooth.field.theta, intercept=4 * smooth.field.intercept)
    steep = replace(smooth, field=weights)
    valid = known.tables(50_000, 1)
    found = agglearn.score_tables(steep, valid, law=model)
    assert found.nllh == pytest.approx(nllh_of(known, steep), abs=4 * found.nllh_se)
    # What the model expects of itself is a mean over that law, told here by enumeration; 60,000 draws tell
    # it within 0.001.
    joint = KnownField(known.layout, model.field.mu, model.field.theta, model.field.intercept).law.sum(axis=1)
    p = expit(steep.field.log_odds(np.ascontiguousarray(known.states.T)))
    assert found.brier == pytest.approx(joint @ (p * (1 - p)), abs=0.002)


def test_a_law_over_another_schema_is_refused(model: Model, train: AggregatedData) -> None:
    other = agglearn.aggregate(
        {"f0": ["a", "b"] * 20, "f1": ["u", "v", "v", "u"] * 10, "y": [0, 1] * 20}, "y"
    )
    foreign = agglearn.fit(other, FitSettings(chains=100, iterations=2))
    with pytest.raises(InputError, match="the law has another schema"):
        agglearn.score_tables(model, train, law=foreign)


# --- calibration ------------------------------------------------------------------------------------------


def chains_of(layout: Layout, drawn: npt.NDArray[np.uint16]) -> Chains:
    return Chains(layout, np.ascontiguousarray(drawn.T))


def calibration_of(
    rows: int, seed: int, theta_shift: np.ndarray | None = None, chains: int = 20_000
) -> Calibration:
    """Calibration of a field's own weights, shifted or not, on fresh records of the field."""
    field = random_field(9, CARDS)
    heldout = field.problem(rows, 1000 + seed)
    drawn, _ = field.draw(chains, 5000 + seed)
    judged = field if theta_shift is None else replace(field, theta=field.theta + theta_shift)
    return calibrate(heldout, schema_of(CARDS), chains_of(field.layout, drawn), judged)


def test_z_scores_of_a_right_field_are_standard_normal() -> None:
    found = [calibration_of(3_000, seed) for seed in range(40)]
    # Σz² of one table is χ² over independent samples: its p-values are uniform, by Kolmogorov and Smirnov.
    for name in ("f0 × f2", "f1 × f3"):
        p_values = [g.p_value for one in found for g in one.tables if g.name == name]
        assert len(p_values) == 40
        assert kstest(p_values, "uniform").pvalue > 1e-3
    p_values = [g.p_value for one in found for g in one.features if g.name == "f2"]
    assert kstest(p_values, "uniform").pvalue > 1e-3
    # Far cells come as often as chance has them: a Poisson count, with room for cells that share records.
    far, chance = sum(one.far for one in found), sum(one.far_by_chance for one in found)
    assert abs(far - chance) < 3 * np.sqrt(2 * chance) + 1


def test_few_chains_widen_the_standard_errors_instead_of_raising_alarms() -> None:
    # Here the chains' error in the expected rates is larger than the held-out labels'.
    found = [calibration_of(30_000, seed, chains=1_500) for seed in range(10)]
    mean_square = np.mean([g.chi2 / g.cells for one in found for g in one.tables])
    # Ten samples of six tables of about a dozen cells: √(2 / 700) = 0.05, more as tables share their records.
    assert mean_square == pytest.approx(1, abs=0.3)


def test_a_planted_miscalibration_is_named() -> None:
    problem, _ = random_problem(0, CARDS)
    t = problem.layout.scopes.index((0, 2))
    shift = np.zeros(problem.layout.n_cells)
    problem.layout.table(shift, t)[1, 3] = -1.2
    found = calibration_of(20_000, 0, shift)
    worst = found.worst[0]
    assert (worst.features, worst.values) == (("f0", "f2"), ("v1", "v3"))
    assert worst.name == "f0=v1, f2=v3"
    assert worst.observed > worst.expected
    assert worst.z > 5
    assert worst.by_chance < 1e-3
    assert found.tables[0].name == "f0 × f2"
    assert found.tables[0].p_value < 1e-6
    assert found.tables[0].worst == worst
    assert {found.features[0].name, found.features[1].name} == {"f0", "f2"}


def test_expected_and_observed_rates_are_those_of_the_cell() -> None:
    problem, engine = random_problem(5, (2, 2), rows=4_000)
    judged = Field(problem.layout, np.zeros(4), np.array([0.0, 1.0, -1.0, 2.0]), 0.0)
    fresh, y = engine.sample(4_000, judged, 1)
    d, c = count(problem.layout, fresh.T, y)
    p = 1 / (1 + np.exp(-np.array([0.0, 1.0, -1.0, 2.0])))
    chains = chains_of(problem.layout, every_state((2, 2)).repeat(25, axis=0))  # 25 in each of the four cells
    heldout = Problem(problem.layout, d, c, 4_000.0, float(y.sum()))
    found = calibrate(heldout, schema_of((2, 2)), chains, judged)
    assert found.cells == 4
    for cell in found.worst:
        at = np.ravel_multi_index([int(v[1:]) for v in cell.values], (2, 2))
        assert cell.records == d[at]
        assert cell.expected == pytest.approx(p[at])
        assert cell.observed == c[at] / d[at]
        # All chains of a cell say the same, so that the labels' error is all there is.
        assert cell.z == pytest.approx((c[at] - d[at] * p[at]) / np.sqrt(d[at] * p[at] * (1 - p[at])))


@pytest.mark.parametrize(("on_counts", "on_sums"), [(9.0, 9.0), (12.0, 0.0), (0.0, 12.0), (5.0, 15.0)])
def test_noise_on_counts_and_on_sums_widens_what_it_touches(on_counts: float, on_sums: float) -> None:
    layout = Layout.plain((2, 3), [(0, 1)])
    field = Field(layout, np.zeros(6), np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0]), -0.5)
    p = expit(field.theta - 0.5).reshape(2, 3)
    d = np.array([[120.0, 80.0, 100.0], [90.0, 60.0, 150.0]])
    c = np.array([[60.0, 25.0, 40.0], [70.0, 30.0, 80.0]])
    noise = TableNoise(np.array([on_counts]), np.array([on_sums]))
    heldout = Problem(layout, d.reshape(-1), c.reshape(-1), 600.0, float(c.sum()), noise=noise)
    chains = chains_of(layout, every_state((2, 3)).repeat(25, axis=0))
    found = calibrate(heldout, schema_of((2, 3)), chains, field)
    # All chains of a cell say the same. Of c − d·p, c has its own noise and d·p that of d, times p.
    z = (c - d * p) / np.sqrt(d * p * (1 - p) + on_sums**2 + on_counts**2 * p**2)
    assert {cell.values: cell.z for cell in found.worst} == pytest.approx(
        {(f"v{a}", f"v{b}"): z[a, b] for a in range(2) for b in range(3)}
    )
    # A value of f0 is summed over three cells, with three times the variance.
    rows, positives, q = d.sum(axis=1), c.sum(axis=1), p[:, 0]
    of_f0 = (positives - rows * q) / np.sqrt(rows * q * (1 - q) + 3 * (on_sums**2 + on_counts**2 * q**2))
    single = next(group for group in found.features if group.name == "f0")
    assert single.chi2 == pytest.approx(float(of_f0 @ of_f0))


def test_a_law_that_is_known_exactly_adds_no_error_of_its_own(known: KnownField) -> None:
    codes, y = known.draw(6_000, 7)
    judged = replace(known, theta=0.8 * known.theta)
    law = known.law.sum(axis=1)
    found = calibrate(
        problem_of(known.layout, codes, y),
        schema_of(CARDS),
        Enumeration(States(known.layout), law),
        judged,
    )
    assert sum(len(cell.values) == 2 for cell in found.worst) > 5
    p = expit(judged.log_odds(np.ascontiguousarray(known.states.T)))
    for cell in found.worst:
        if cell.values:
            at = [(int(f[1:]), int(v[1:])) for f, v in zip(cell.features, cell.values, strict=True)]
            inside, held = (np.all([x[:, f] == v for f, v in at], axis=0) for x in (known.states, codes))
            q, n = law[inside] @ p[inside] / law[inside].sum(), held.sum()
            assert cell.records == n
            assert cell.expected == pytest.approx(q)
            assert cell.z == pytest.approx((y[held].sum() - n * q) / np.sqrt(n * q * (1 - q)))
    # Draws come to the same, and less sure of it.
    many, few = (
        calibrate(problem_of(known.layout, codes, y), schema_of(CARDS), chains_of(known.layout, x), judged)
        for x in (known.draw(1_000_000, 8)[0], known.draw(2_000, 8)[0])
    )
    assert [g.unjudged for g in found.tables] == [0.0] * 6
    chi2 = {g.name: g.chi2 for g in found.tables}
    assert {g.name: g.chi2 for g in many.tables} == pytest.approx(chi2, rel=0.1)
    assert sum(g.chi2 for g in few.tables) < sum(chi2.values())


def test_a_cell_with_just_as_many_chains_as_it_takes_is_judged_alone() -> None:
    layout = Layout.plain((2, 2), [(0, 1)])
    d = np.array([50.0, 50.0, 50.0, 50.0])
    heldout = Problem(layout, d, d / 2, 200.0, 100.0)
    # 20 of 77: in floating point 20/77·77 is less than 20.
    codes = every_state((2, 2)).repeat([20, 19, 19, 19], axis=0)
    found = calibrate(
        heldout, schema_of((2, 2)), chains_of(layout, codes), Field(layout, np.zeros(4), np.zeros(4), 0.0)
    )
    assert {cell.name for cell in found.worst} == {"f0=v0, f1=v0", "f0 × f1: all small cells"}


def test_small_cells_are_judged_together_and_cells_without_chains_not_at_all() -> None:
    problem, _ = random_problem(5, (2, 3), rows=4_000)
    d = np.array([100.0, 8.0, 8.0, 8.0, 8.0, 68.0])
    heldout = Problem(problem.layout, d, 0.5 * d, 200.0, 100.0)
    states = np.array([0, 1, 2, 3, 4]).repeat(40)  # none in the last cell
    chains = Chains(problem.layout, np.array(np.unravel_index(states, (2, 3)), np.uint16))
    even = Field(problem.layout, np.zeros(6), np.zeros(6), 0.0)  # a rate of one half everywhere
    found = calibrate(heldout, schema_of((2, 3)), chains, even)
    assert found.tables[0].cells == 2
    assert found.tables[0].unjudged == pytest.approx(68 / 200)
    assert {cell.name for cell in found.worst} == {"f0=v0, f1=v0", "f0 × f1: all small cells"}
    together = next(cell for cell in found.worst if not cell.values)
    assert (together.records, together.expected) == (32, 0.5)


def test_withheld_cells_and_buckets_are_told_apart(known: KnownField) -> None:
    hashed = agglearn.aggregate(columns(*known.draw(6_000, 3)), "y", hash_size=7)
    fitted = agglearn.fit(hashed, FitSettings(chains=2_000, iterations=20))
    found = agglearn.score_tables(fitted, hashed).calibration
    assert any(cell.values and cell.values[0].startswith("bucket ") for cell in found.worst)
    assert found.features == ()  # no bucket tells a single value

    plain = known.tables(6_000, 3)
    table = plain.tables["f0", "f2"]
    measured = np.ones(table.counts.shape, bool)
    measured[0] = False
    cut = replace(plain, tables={**plain.tables, ("f0", "f2"): replace(table, measured=measured)}, floor=10.0)
    fitted = agglearn.fit(plain, FitSettings(chains=2_000, iterations=20))
    groups = {g.name: g for g in agglearn.score_tables(fitted, cut).calibration.tables}
    assert groups["f0 × f2"].cells <= 15
    assert groups["f0 × f2"].unjudged > 0


# --- the command line -------------------------------------------------------------------------------------


def test_evaluate_on_tables_says_the_score_where_it_is_off_and_what_it_assumes(
    run_cli: Cli, model: Model, train: AggregatedData, known: KnownField, tmp_path: Path
) -> None:
    save_model(model, tmp_path / "m.model")
    agglearn.save(known.tables(3_000, 1), tmp_path / "valid.agg")
    done = run_cli("evaluate", tmp_path / "m.model", tmp_path / "valid.agg")
    assert (done.code, done.err) == (0, "")
    expected = agglearn.score_tables(model, known.tables(3_000, 1))
    assert f"NLLH      {expected.nllh:.4f} ± {expected.nllh_se:.4f}" in done.out
    for said in ("log loss", "AUC", "as the model itself expects it", "would be by chance", "too high"):
        assert said in done.out
    assert expected.calibration.worst[0].name in done.out
    document = run_cli("evaluate", tmp_path / "m.model", tmp_path / "valid.agg", "--json").json
    assert document == json.loads(json.dumps(expected.to_json()))
    assert {"nllh", "nllh_se", "log_loss", "auc", "brier", "rows", "calibration"} <= document.keys()
    assert {"cells", "far", "far_by_chance", "tables", "features", "worst"} == document["calibration"].keys()


def test_a_score_on_the_models_own_tables_says_so_first(model: Model, train: AggregatedData) -> None:
    score = agglearn.score_tables(model, train)
    assert score.own_tables
    assert score.to_json()["own_tables"]
    assert "very tables that the model was fitted to" in str(score).splitlines()[1]


def test_a_score_that_noise_drowns_is_not_told(
    run_cli: Cli, model: Model, known: KnownField, tmp_path: Path
) -> None:
    noisy = with_noise(known.tables(3_000, 1), "gaussian", 300.0, 300.0)
    score = agglearn.score_tables(model, noisy)
    assert not score.own_tables
    assert not score.known
    save_model(model, tmp_path / "m.model")
    agglearn.save(noisy, tmp_path / "noisy.agg")
    done = run_cli("evaluate", tmp_path / "m.model", tmp_path / "noisy.agg", "--json")
    assert done.code == 0
    assert done.json["nllh"] is None
    assert "do not tell a score" in done.err
    assert "unknown" in str(score)


def test_noise_on_the_tables_is_part_of_the_error_beside_their_own_records(
    model: Model, known: KnownField
) -> None:
    plain = known.tables(3_000, 1)
    exact, noisy = (
        agglearn.score_tables(model, tables) for tables in (plain, with_noise(plain, "gaussian", 10.0, 10.0))
    )
    assert noisy.records_se > 2 * exact.records_se
