"""The score from held-out tables, beside the score on the records behind them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from scipy.special import expit

import agglearn
from agglearn.datasets import AdsLog
from agglearn.errors import TableError
from agglearn.field.field import Field
from agglearn.field.heldout import Difference, TableScore, compare_heldout, score_heldout
from agglearn.field.population import Chains, Enumeration
from agglearn.field.problem import Problem, TableNoise, matching
from agglearn.field.states import States
from agglearn.judge.scores import score_predictions
from agglearn.train.loop import Fit, fit
from agglearn.train.settings import FitSettings
from tests.conftest import Cli
from tests.fields import Floats, KnownField, cells_of, problem_of, random_field, random_problem


def of_fit(run: Fit) -> KnownField:
    return KnownField(run.problem.layout, run.field.mu, run.field.theta, run.field.intercept)


def scaled(field: Field, factor: float) -> Field:
    return replace(field, theta=factor * field.theta)


@pytest.mark.parametrize("seed", range(4))
def test_on_records_of_a_pairwise_field_the_score_from_tables_is_the_score_on_records(seed: int) -> None:
    problem, engine = random_problem(seed, (4, 3, 5, 3), strength=0.4)
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=20_000))
    # Fresh records of the field itself: its law of X is then the true one, and nothing is to be feared.
    fresh, y = of_fit(run).draw(20_000, 100 + seed)
    heldout = problem_of(problem.layout, fresh, y)
    chains = run.engine.population(run.field)
    score = score_heldout(heldout, chains, run.field)
    states = np.ravel_multi_index(tuple(fresh.T.astype(int)), problem.layout.cards)
    truth = score_predictions(y, engine.states.scores(run.field.theta)[states] + run.field.intercept)
    # Both are judged on the same records: what differs is what no table tells of them, and the chains'
    # error. Four standard errors of that are not exceeded by chance.
    assert score.records_se < score.nllh_se / 2
    assert score.nllh == pytest.approx(truth.nllh, abs=4 * score.records_se)
    assert score.nllh == pytest.approx(truth.nllh, abs=0.005)
    assert score.auc == pytest.approx(truth.auc, abs=0.01)
    assert score.brier == pytest.approx(truth.brier, abs=0.005)


def test_on_the_exact_tables_of_a_field_the_score_is_the_enumerated_one() -> None:
    problem, engine = random_problem(3, (4, 3, 5), strength=0.5)
    run = fit(problem, FitSettings(lambda_theta=2.0, engine="exact"))
    expected = engine.expect(run.field)
    heldout = Problem(problem.layout, expected.d, expected.c, engine.rows, expected.positives)
    chains = Chains(problem.layout, engine.sample(20_000, run.field, 0)[0])
    joint = engine.probabilities(run.field)
    s = engine.states.scores(run.field.theta) + run.field.intercept
    loss = np.sum(joint * np.column_stack([np.logaddexp(0, s), np.logaddexp(0, -s)]))
    rate = joint.sum(axis=0)
    score = score_heldout(heldout, chains, run.field)
    # The tables have no error here, so the chains' is all there is: four of them.
    assert score.log_loss == pytest.approx(loss, abs=4 * score.chains_se * -(rate @ np.log(rate)))
    assert score.nllh == pytest.approx(1 + loss / (rate @ np.log(rate)), abs=4 * score.chains_se)
    # The control variate is what makes that error small: the plain mean over 20,000 has this one.
    assert score.chains_se < np.std(np.logaddexp(0, s)) / np.sqrt(20_000)


def test_the_standard_error_is_the_spread_over_samples_of_records() -> None:
    problem, engine = random_problem(1, (4, 3, 5), strength=0.5)
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=20_000))
    chains = run.engine.population(run.field)
    other = scaled(run.field, 0.8)
    scores, differences, apart = [], [], []
    for seed in range(60):
        fresh, y = of_fit(run).draw(3000, seed)
        heldout = problem_of(problem.layout, fresh, y)
        scores.append(score_heldout(heldout, chains, run.field))
        differences.append(compare_heldout(heldout, chains, run.field, other))
        states = np.ravel_multi_index(tuple(fresh.T.astype(int)), problem.layout.cards)
        truth = score_predictions(y, engine.states.scores(run.field.theta)[states] + run.field.intercept)
        apart.append(scores[-1].nllh - truth.nllh)
    # Sixty draws tell a standard deviation within 9 %: three of those.
    for found in (scores, differences):
        spread = np.std([s.nllh for s in found], ddof=1)
        assert np.mean([s.nllh_se for s in found]) == pytest.approx(spread, rel=0.27)
    # The same chains judge every sample: their error is the same in all, and not in the spread.
    of_records = [np.sqrt(s.records_se**2 - s.chains_se**2) for s in scores]
    assert np.mean(of_records) == pytest.approx(np.std(apart, ddof=1), rel=0.27)
    # What two sets of weights have in common cancels.
    assert differences[0].nllh_se < scores[0].nllh_se / 3


def test_a_difference_is_that_of_the_scores_on_the_records() -> None:
    problem, engine = random_problem(2, (4, 3, 5, 3), strength=0.4)
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=20_000))
    fresh, y = of_fit(run).draw(20_000, 5)
    heldout = problem_of(problem.layout, fresh, y)
    chains = run.engine.population(run.field)
    smaller, larger = scaled(run.field, 0.7), scaled(run.field, 1.4)
    states = np.ravel_multi_index(tuple(fresh.T.astype(int)), problem.layout.cards)
    truth = [
        score_predictions(y, engine.states.scores(field.theta)[states] + field.intercept).nllh
        for field in (smaller, larger)
    ]
    found = compare_heldout(heldout, chains, smaller, larger)
    assert found.nllh == pytest.approx(truth[0] - truth[1], abs=4 * found.nllh_se)
    assert compare_heldout(heldout, chains, larger, smaller).nllh == pytest.approx(-found.nllh, abs=1e-9)
    assert compare_heldout(heldout, chains, smaller, smaller).nllh == pytest.approx(0, abs=1e-12)


def test_a_chain_that_did_not_move_between_two_draws_counts_once() -> None:
    problem, _ = random_problem(0, (4, 3, 5))
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=5000))
    heldout = of_fit(run).problem(3000, 1)
    codes = run.engine.chains
    assert codes is not None
    once = score_heldout(heldout, Chains(problem.layout, codes), run.field)
    twice = score_heldout(heldout, Chains(problem.layout, np.hstack([codes, codes]), draws=2), run.field)
    # The ridge weighs half as much beside twice the records, and conjugate gradients stop elsewhere.
    assert twice.chains_se == pytest.approx(once.chains_se, rel=0.02)
    assert twice.nllh == pytest.approx(once.nllh, abs=0.2 * once.chains_se)


def test_noise_on_the_tables_adds_its_part_to_the_standard_error() -> None:
    problem, _ = random_problem(4, (4, 3, 5))
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=10_000))
    heldout = of_fit(run).problem(20_000, 1)
    chains = run.engine.population(run.field)
    sigma = np.array([0.0, 200.0, 400.0])
    cells = np.repeat(sigma, problem.layout.sizes)
    rng = np.random.default_rng(0)
    noisy = []
    for _ in range(60):
        d, c = (
            heldout.d + cells * rng.normal(size=cells.size),
            heldout.c + cells * rng.normal(size=cells.size),
        )
        tables = replace(heldout, d=d, c=c, noise=TableNoise(sigma, sigma))
        noisy.append(score_heldout(tables, chains, run.field))
    plain = score_heldout(heldout, chains, run.field)
    added = np.mean([s.nllh_se**2 for s in noisy]) - plain.nllh_se**2
    # Sixty draws tell a standard deviation within 9 %: three of those.
    assert np.sqrt(added) == pytest.approx(np.std([s.nllh for s in noisy], ddof=1), rel=0.27)


def test_noise_on_negatives_and_positives_moves_counts_and_sums_together() -> None:
    problem, _ = random_problem(4, (4, 3, 5), strength=1.0)
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=10_000))
    heldout = of_fit(run).problem(20_000, 1)
    chains, sigma, sizes = run.engine.population(run.field), 300.0, problem.layout.n_cells
    every = np.full(problem.layout.n_tables, sigma)
    noise = TableNoise(np.sqrt(2) * every, every, every**2)
    rng = np.random.default_rng(0)
    found, errors = [], []
    for _ in range(100):
        negatives, positives = sigma * rng.normal(size=(2, sizes))
        d, c = heldout.d + negatives + positives, heldout.c + positives
        score = score_heldout(replace(heldout, d=d, c=c, noise=noise), chains, run.field)
        found.append(score.nllh)
        errors.append(score.records_se)
    # Beside the records behind the tables their noise is nearly all there is. A hundred draws tell a standard
    # deviation within 7 %: three of those. Taken for independent it would be another by a quarter and more.
    spread = np.std(found, ddof=1)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(spread, rel=0.21)
    apart = replace(noise, shared=None)
    alone = score_heldout(replace(heldout, noise=apart), chains, run.field).records_se
    assert abs(alone / spread - 1) > 0.25


@pytest.mark.parametrize(
    ("counts", "sums"),
    [((0.0, 200.0, 400.0), (0.0, 0.0, 0.0)), ((0.0, 0.0, 0.0), (300.0, 0.0, 100.0)),
     ((300.0, 0.0, 150.0), (0.0, 400.0, 100.0))],
)  # fmt: skip
def test_noise_on_counts_and_noise_on_sums_each_add_their_own_part(
    counts: tuple[float, ...], sums: tuple[float, ...]
) -> None:
    problem, _ = random_problem(4, (4, 3, 5))
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=10_000))
    heldout = of_fit(run).problem(20_000, 1)
    chains, other = run.engine.population(run.field), scaled(run.field, 0.5)
    sigmas = [np.repeat(sigma, problem.layout.sizes) for sigma in (counts, sums)]
    rng = np.random.default_rng(0)
    found: list[tuple[float, ...]] = []
    errors: list[tuple[float, ...]] = []

    def judge(tables: Problem) -> tuple[TableScore, Difference]:
        return score_heldout(tables, chains, run.field), compare_heldout(tables, chains, run.field, other)

    for _ in range(60):
        d, c = (
            numbers + sigma * rng.normal(size=sigma.size)
            for numbers, sigma in zip((heldout.d, heldout.c), sigmas, strict=True)
        )
        tables = replace(heldout, d=d, c=c, noise=TableNoise(np.array(counts), np.array(sums)))
        judged = judge(tables)
        found.append(tuple(one.nllh for one in judged))
        errors.append(tuple(one.nllh_se for one in judged))
    plain = np.square([one.nllh_se for one in judge(heldout)])
    added = np.mean(np.square(errors), axis=0) - plain
    # Sixty draws tell a standard deviation within 9 %: three of those.
    assert np.sqrt(added) == pytest.approx(np.std(found, axis=0, ddof=1), rel=0.27)


def test_the_part_of_noise_on_sums_is_that_of_a_sum_of_weights_times_noise() -> None:
    field = random_field(6, (4, 3, 5))
    heldout = field.problem(20_000, 1)
    chains, other = Chains(field.layout, np.ascontiguousarray(field.draw(5_000, 2)[0].T)), scaled(field, 0.5)
    sigma, none = np.array([30.0, 0.0, 90.0]), np.zeros(3)
    rate = heldout.positives / heldout.rows
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))

    def squares(counts: Floats, sums: Floats) -> Floats:
        """Squared standard errors of a score and of a difference, the tables' numbers being the same."""
        tables = replace(heldout, noise=TableNoise(counts, sums))
        score, difference = (
            score_heldout(tables, chains, field),
            compare_heldout(tables, chains, field, other),
        )
        return np.square([score.nllh_se, difference.nllh_se])

    # c·θ is linear in the sums: its variance is σ²θ² of each cell, and that of a difference σ²(θ − θ′)².
    by_hand = np.array([np.repeat(sigma**2, field.layout.sizes) @ field.theta**2] * 2) * [1.0, 0.25]
    on_sums = squares(none, sigma) - squares(none, none)
    assert on_sums == pytest.approx(by_hand / (heldout.rows * entropy) ** 2)
    # Counts and sums have noises that know nothing of each other.
    on_counts = squares(2 * sigma, none) - squares(none, none)
    assert (on_counts > 0).all()
    assert squares(2 * sigma, sigma) - squares(none, none) == pytest.approx(on_counts + on_sums)
    assert squares(sigma, none) - squares(none, none) == pytest.approx(on_counts / 4)


def test_over_all_states_the_score_on_exact_tables_is_the_enumerated_one() -> None:
    known = random_field(3, (4, 3, 5))
    other = scaled(known, 1.5)
    law, rows = known.law.sum(axis=1), 10_000.0
    cells = cells_of(known.layout, known.states)
    phi = np.zeros((len(law), known.layout.n_cells))
    np.put_along_axis(phi, cells.T, 1.0, axis=1)
    heldout = Problem(
        known.layout, rows * law @ phi, rows * known.law[:, 1] @ phi, rows, rows * known.law[:, 1].sum()
    )
    population = Enumeration(States(known.layout), law)
    score = score_heldout(heldout, population, known)
    rate = known.law.sum(axis=0)
    entropy = -(rate @ np.log(rate))

    def loss_of(field: Field) -> float:
        s = phi @ field.theta + field.intercept
        return float(np.sum(known.law * np.column_stack([np.logaddexp(0, s), np.logaddexp(0, -s)])))

    assert score.chains_se == 0
    assert score.log_loss == pytest.approx(loss_of(known), abs=1e-12)
    assert score.nllh == pytest.approx(1 - loss_of(known) / entropy, abs=1e-12)
    difference = compare_heldout(heldout, population, known, other)
    assert difference.nllh == pytest.approx((loss_of(other) - loss_of(known)) / entropy, abs=1e-12)
    s = phi @ known.theta + known.intercept
    p = expit(s)
    assert score.brier == pytest.approx(law @ (p * (1 - p)), abs=1e-12)
    above = (s[:, None] > s) + 0.5 * (s[:, None] == s)
    auc = known.law[:, 1] @ above @ known.law[:, 0] / rate.prod()
    # States are drawn 2²⁰ times, each as often as it is likely within one.
    assert score.auc == pytest.approx(auc, abs=4 * len(law) / 2**20)
    # What tables do not tell of log(1 + eˢ) is what a regression on the cells leaves of it. Conjugate
    # gradients end where the residual is a thousandth: of its square that is a millionth.
    root = np.sqrt(law)
    rest = np.logaddexp(0, s) - phi @ np.linalg.lstsq(root[:, None] * phi, root * np.logaddexp(0, s))[0]
    assert score.records_se == pytest.approx(np.sqrt(law @ rest**2 / rows) / entropy, rel=1e-4)


def test_the_score_over_all_states_is_the_limit_of_that_over_many_draws() -> None:
    problem, engine = random_problem(3, (4, 3, 5), strength=0.5)
    run = fit(problem, FitSettings(lambda_theta=2.0, engine="exact"))
    heldout = of_fit(run).problem(5_000, 1)
    limit = score_heldout(heldout, engine.population(run.field), run.field)
    assert limit.chains_se == 0

    def over(draws: int, seed: int) -> TableScore:
        codes = engine.sample(draws, run.field, seed)[0]
        return score_heldout(heldout, Chains(problem.layout, codes), run.field)

    z = []
    for seed in range(16):
        some = over(4_000, seed)
        z.append((some.nllh - limit.nllh) / some.chains_se)
    # Sixteen draws of a standard normal: their mean within 3/√16, their standard deviation within three
    # times √(1/32).
    assert abs(np.mean(z)) < 0.75
    assert np.std(z, ddof=1) == pytest.approx(1, abs=0.53)
    many = over(1_000_000, 0)
    # 250 times the draws have a sixteenth of the error, which over that many is known within a percent.
    assert many.chains_se == pytest.approx(some.chains_se / np.sqrt(250), rel=0.1)
    assert many.nllh == pytest.approx(limit.nllh, abs=4 * many.chains_se)
    assert many.nllh_se == pytest.approx(limit.nllh_se, rel=0.01)
    assert many.records_se == pytest.approx(np.hypot(limit.records_se, many.chains_se), rel=0.01)
    assert many.auc == pytest.approx(limit.auc, abs=0.001)
    assert many.brier == pytest.approx(limit.brier, abs=0.001)


def test_tables_of_another_schema_or_with_fewer_tables_are_refused() -> None:
    records = {
        "a": ["x", "y"] * 4,
        "b": ["u", "u", "v", "v"] * 2,
        "c": ["1", "2", "2", "1"] * 2,
        "y": [0, 1] * 4,
    }
    whole = agglearn.aggregate(records, "y")
    fewer = whole.select(tables=[("a", "b")])
    other = agglearn.aggregate({**records, "a": ["x", "z"] * 4}, "y")
    with pytest.raises(TableError, match="another schema"):
        matching(other, whole.schema, list(whole.tables))
    with pytest.raises(TableError, match="lack a × c"):
        matching(fewer, whole.schema, list(whole.tables))
    assert set(matching(whole, whole.schema, list(fewer.tables)).tables) == {("a", "b")}


def test_fit_with_validation_tables_shows_the_score_that_evaluate_gives(
    run_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = AdsLog(n_features=5, max_modalities=12, seed=3)
    pyarrow.csv.write_csv(log.to_table(*log.sample(20_000, 0), strings=True), "log.csv")
    assert (
        run_cli("aggregate", "log.csv", "--label", "click", "--split", "valid=0.3", "-o", "log.agg").code == 0
    )
    fitted = run_cli("fit", "log.agg", "-o", "log.model", "--valid", "log.valid.agg", "--json").json
    score = run_cli("evaluate", "log.model", "log.valid.agg", "--json").json
    assert {"nllh", "nllh_se", "log_loss", "auc", "brier", "rows"} <= score.keys()
    assert (fitted["valid_nllh"], fitted["valid_nllh_se"]) == (score["nllh"], score["nllh_se"])
    assert 0 < score["nllh_se"] < 0.1
