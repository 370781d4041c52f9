"""The score from held-out tables, beside the score on the records behind them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

import agglearn
from agglearn.datasets import AdsLog
from agglearn.errors import TableError
from agglearn.field.heldout import score_heldout
from agglearn.field.problem import Problem, matching
from agglearn.field.settings import FitSettings
from agglearn.field.train import fit, sample_codes
from agglearn.score import score_predictions
from tests.conftest import Cli
from tests.fields import count, random_problem


@pytest.mark.parametrize("seed", range(4))
def test_on_records_of_a_pairwise_field_the_score_from_tables_is_the_score_on_records(seed: int) -> None:
    problem, engine = random_problem(seed, (4, 3, 5, 3), strength=0.4)
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=20_000))
    # Fresh records of the field itself: its law of X is then the true one, and nothing is to be feared.
    fresh, y = engine.sample(20_000, run.mu, run.theta, run.intercept, 100 + seed)
    d, c = count(problem.layout, fresh, y)
    heldout = Problem(problem.layout, d, c, 20_000.0, float(y.sum()))
    codes = sample_codes(run.engine, run.mu, run.theta, run.intercept)
    score = score_heldout(heldout, codes, run.theta, run.intercept)
    states = np.ravel_multi_index(tuple(fresh.T.astype(int)), problem.layout.cards)
    truth = score_predictions(y, engine.scores(run.theta)[states] + run.intercept)
    # Both are judged on the same records: what differs is the chains' error alone, a part of the standard
    # error, and four of those are never exceeded by chance.
    assert score.nllh == pytest.approx(truth.nllh, abs=4 * score.nllh_se)
    assert score.nllh == pytest.approx(truth.nllh, abs=0.005)
    assert score.auc == pytest.approx(truth.auc, abs=0.01)
    assert score.brier == pytest.approx(truth.brier, abs=0.005)


def test_the_standard_error_is_the_spread_over_samples_of_records() -> None:
    problem, engine = random_problem(1, (4, 3, 5), strength=0.5)
    run = fit(problem, FitSettings(lambda_theta=2.0, chains=20_000))
    codes = sample_codes(run.engine, run.mu, run.theta, run.intercept)
    scores = []
    for seed in range(40):
        fresh, y = engine.sample(3000, run.mu, run.theta, run.intercept, seed)
        d, c = count(problem.layout, fresh, y)
        scores.append(
            score_heldout(
                Problem(problem.layout, d, c, 3000.0, float(y.sum())), codes, run.theta, run.intercept
            )
        )
    spread = np.std([s.nllh for s in scores])
    # The entropy of 3,000 labels varies too, which the standard error leaves out; forty draws tell a
    # standard deviation within 11 %.
    assert np.mean([s.nllh_se for s in scores]) == pytest.approx(spread, rel=0.4)


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


def test_fit_with_validation_tables_shows_their_score_and_evaluate_gives_it_again(
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
    assert score["nllh"] == pytest.approx(fitted["valid_nllh"], abs=1e-9)
    assert 0 < score["nllh_se"] < 0.1
