"""Which law of X goes with the tables, and what a law of its own means."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from agglearn.field.engines.exact import ExactEngine
from agglearn.field.field import Field
from agglearn.field.problem import Problem
from agglearn.train.law import label_in_x, stands_apart
from agglearn.train.loop import fit
from agglearn.train.settings import FitSettings
from tests.fields import pairs

CARDS = (3, 3, 3, 3)
LAYOUT = pairs(CARDS)
STATES = np.array(list(product(*map(range, CARDS))))


def problem_of(codes: np.ndarray, y: np.ndarray) -> Problem:
    d, c = np.zeros(LAYOUT.n_cells), np.zeros(LAYOUT.n_cells)
    for t, (f, g) in enumerate(LAYOUT.scopes):
        cells = LAYOUT.offsets[t] + codes[:, f] * CARDS[g] + codes[:, g]
        np.add.at(d, cells, 1.0)
        np.add.at(c, cells, y.astype(float))
    return Problem(LAYOUT, d, c, float(len(y)), float(y.sum()))


def designed(n: int, seed: int = 0) -> Problem:
    """Every combination as often, and a label that nearly follows a rule of the first two features."""
    codes = np.tile(STATES, (n // len(STATES), 1))
    odds = 4.0 * (codes[:, 0] + codes[:, 1] - 2) + 1.0 * (codes[:, 2] - 1)
    return problem_of(codes, np.random.default_rng(seed).random(len(codes)) < 1 / (1 + np.exp(-odds)))


def of_classes(n: int, seed: int = 0) -> Problem:
    """Features that are independent within either class: all they share is the label."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.4
    laws = np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])
    codes = np.stack([(rng.random(n)[:, None] > laws[y.astype(int)].cumsum(1)).sum(1) for _ in CARDS], axis=1)
    return problem_of(np.minimum(codes, 2), y)


def test_of_features_that_share_nothing_but_the_label_all_that_it_lends_is_there() -> None:
    shown, error = label_in_x(of_classes(20_000))
    assert shown == pytest.approx(1.0, abs=5 * error)
    assert not stands_apart(of_classes(20_000))


def test_records_laid_out_by_a_design_show_nothing_of_the_label() -> None:
    shown, error = label_in_x(designed(8100))
    assert abs(shown) < 3 * error
    assert stands_apart(designed(8100))


def test_a_label_that_tells_of_nothing_leaves_the_question_open() -> None:
    rng = np.random.default_rng(2)
    assert not stands_apart(problem_of(rng.integers(0, 3, (300, 4)), rng.random(300) < 0.5))


def test_apart_x_follows_mu_alone_and_the_label_follows_x() -> None:
    rng = np.random.default_rng(0)
    mu, theta = rng.normal(size=(2, LAYOUT.n_cells))
    engine = ExactEngine(LAYOUT, 100.0)
    joint = engine.probabilities(Field(LAYOUT, mu, theta, -0.5, apart=True))
    scores, odds = engine.states.scores(mu), engine.states.scores(theta) - 0.5
    law = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(joint.sum(axis=1), law)
    np.testing.assert_allclose(joint[:, 1] / joint.sum(axis=1), 1 / (1 + np.exp(-odds)))


def test_on_a_design_the_law_of_its_own_predicts_better_by_either_engine() -> None:
    problem = designed(8100)
    odds = 4.0 * (STATES[:, 0] + STATES[:, 1] - 2) + 1.0 * (STATES[:, 2] - 1)
    true = 1 / (1 + np.exp(-odds))

    def loss(law: str, engine: str) -> float:
        settings = FitSettings(engine=engine, chains=4000, seed=1)
        settings = replace(settings, training=replace(settings.training, law=law))
        found = fit(problem, settings).field
        codes = np.ascontiguousarray(STATES.T).astype(np.uint16)
        z = found.log_odds(codes)
        return float((np.logaddexp(0, z) - true * z).mean())

    for engine in ("local", "exact"):
        assert loss("apart", engine) < loss("one", engine)
        assert loss("auto", engine) == loss("apart", engine)
