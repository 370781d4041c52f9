"""The score from held-out tables, beside the score on the records behind them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

import agglearn
from agglearn.datasets import AdsLog
from agglearn.errors import TableError
from agglearn.field.heldout import compare_heldout, score_heldout
from agglearn.field.problem import Problem, matching
from agglearn.judge.scores import score_predictions
from agglearn.train.loop import Fit, fit, sample_codes
from agglearn.train.settings import FitSettings
from tests.conftest import Cli
from tests.fields import KnownField, problem_of, random_problem


def of_fit(run: Fit) -> KnownField:
    return KnownField(run.problem.layout, run.mu, run.theta, run.intercept)


@pytest.mark.parametrize("seed", range(4))
def test_on_records_of_a_pairwise_field_the_score_from_tables_is_the_score_on_records(seed: int) -> None:
    problem, engine = random_problem(seed, (4, 3, 5, 3), strength=0.4)
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=20_000))
    # Fresh records of the field itself: its law of X is then the true one, and nothing is to be feared.
    fresh, y = of_fit(run).draw(20_000, 100 + seed)
    heldout = problem_of(problem.layout, fresh, y)
    codes = sample_codes(run.engine, run.mu, run.theta, run.intercept)
    score = score_heldout(heldout, codes, run.theta, run.intercept)
    states = np.ravel_multi_index(tuple(fresh.T.astype(int)), problem.layout.cards)
    truth = score_predictions(y, engine.scores(run.theta)[states] + run.intercept)
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
    expected = engine.expect(run.mu, run.theta, run.intercept)
    heldout = Problem(problem.layout, expected.d, expected.c, engine.rows, expected.positives)
    codes = np.ascontiguousarray(engine.sample(20_000, run.mu, run.theta, run.intercept, 0)[0].T)
    joint = engine.probabilities(run.mu, run.theta, run.intercept)
    s = engine.scores(run.theta) + run.intercept
    loss = np.sum(joint * np.column_stack([np.logaddexp(0, s), np.logaddexp(0, -s)]))
    rate = joint.sum(axis=0)
    score = score_heldout(heldout, codes, run.theta, run.intercept)
    # The tables have no error here, so the chains' is all there is: four of them.
    assert score.log_loss == pytest.approx(loss, abs=4 * score.chains_se * -(rate @ np.log(rate)))
    assert score.nllh == pytest.approx(1 + loss / (rate @ np.log(rate)), abs=4 * score.chains_se)
    # The control variate is what makes that error small: the plain mean over 20,000 has this one.
    assert score.chains_se < np.std(np.logaddexp(0, s)) / np.sqrt(20_000)


def test_the_standard_error_is_the_spread_over_samples_of_records() -> None:
    problem, engine = random_problem(1, (4, 3, 5), strength=0.5)
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=20_000))
    codes = sample_codes(run.engine, run.mu, run.theta, run.intercept)
    other = (run.theta * 0.8, run.intercept)
    scores, differences, apart = [], [], []
    for seed in range(60):
        fresh, y = of_fit(run).draw(3000, seed)
        heldout = problem_of(problem.layout, fresh, y)
        scores.append(score_heldout(heldout, codes, run.theta, run.intercept))
        differences.append(compare_heldout(heldout, codes, (run.theta, run.intercept), other))
        states = np.ravel_multi_index(tuple(fresh.T.astype(int)), problem.layout.cards)
        truth = score_predictions(y, engine.scores(run.theta)[states] + run.intercept)
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
    codes = sample_codes(run.engine, run.mu, run.theta, run.intercept)
    smaller, larger = (0.7 * run.theta, run.intercept), (1.4 * run.theta, run.intercept)
    states = np.ravel_multi_index(tuple(fresh.T.astype(int)), problem.layout.cards)
    truth = [
        score_predictions(y, engine.scores(theta)[states] + shift).nllh for theta, shift in (smaller, larger)
    ]
    found = compare_heldout(heldout, codes, smaller, larger)
    assert found.nllh == pytest.approx(truth[0] - truth[1], abs=4 * found.nllh_se)
    assert compare_heldout(heldout, codes, larger, smaller).nllh == pytest.approx(-found.nllh, abs=1e-9)
    assert compare_heldout(heldout, codes, smaller, smaller).nllh == pytest.approx(0, abs=1e-12)


def test_a_chain_that_did_not_move_between_two_draws_counts_once() -> None:
    problem, _ = random_problem(0, (4, 3, 5))
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=5000))
    heldout = of_fit(run).problem(3000, 1)
    codes = sample_codes(run.engine, run.mu, run.theta, run.intercept)
    once = score_heldout(heldout, codes, run.theta, run.intercept)
    twice = score_heldout(heldout, np.hstack([codes, codes]), run.theta, run.intercept, draws=2)
    # The ridge weighs half as much beside twice the records, and conjugate gradients stop elsewhere.
    assert twice.chains_se == pytest.approx(once.chains_se, rel=0.02)
    assert twice.nllh == pytest.approx(once.nllh, abs=0.2 * once.chains_se)


def test_noise_on_the_tables_adds_its_part_to_the_standard_error() -> None:
    problem, _ = random_problem(4, (4, 3, 5))
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=10_000))
    heldout = of_fit(run).problem(20_000, 1)
    codes = sample_codes(run.engine, run.mu, run.theta, run.intercept)
    sigma = np.array([0.0, 200.0, 400.0])
    cells = np.repeat(sigma, problem.layout.sizes)
    rng = np.random.default_rng(0)
    noisy = []
    for _ in range(60):
        d, c = (
            heldout.d + cells * rng.normal(size=cells.size),
            heldout.c + cells * rng.normal(size=cells.size),
        )
        tables = Problem(heldout.layout, d, c, heldout.rows, heldout.positives)
        noisy.append(score_heldout(tables, codes, run.theta, run.intercept, noise=sigma))
    plain = score_heldout(heldout, codes, run.theta, run.intercept)
    added = np.mean([s.nllh_se**2 for s in noisy]) - plain.nllh_se**2
    # Sixty draws tell a standard deviation within 9 %: three of those.
    assert np.sqrt(added) == pytest.approx(np.std([s.nllh for s in noisy], ddof=1), rel=0.27)


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
