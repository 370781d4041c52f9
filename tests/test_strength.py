"""How strong weights are, learnt from noisy tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import agglearn
from agglearn.field.denoise import denoised
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem, TableNoise
from agglearn.field.strength import interaction_variance, weight_variances
from agglearn.model.format import load_model, save_model
from tests.fields import random_field, random_tables, with_noise

CARDS = (6, 5, 6, 5, 6)


def noisy(problem: Problem, sigma: float, seed: int) -> Problem:
    d, c = np.random.default_rng([5, seed]).normal([problem.d, problem.c], sigma)
    each = np.full(problem.layout.n_tables, sigma)
    return replace(problem, d=d, c=c, noise=TableNoise(each, each))


@pytest.mark.parametrize("sigma", [1.0, 20.0, 60.0])
def test_the_strength_of_interactions_is_found_whatever_the_noise(sigma: float) -> None:
    found = []
    for seed in range(6):
        problem = random_field([3, seed], CARDS, (0.2, 0.3)).problem(20_000, seed)
        given = noisy(problem, sigma, seed)
        s = interaction_variance(given, denoised(given))
        assert s is not None
        found.append(s)
    # Weights have variance 0.09. An interaction shows in tables that share a feature with its own, as
    # features depend on each other: up to twice that was seen. A fit to the tables relieved of
    # noise has hardly any weights left at σ = 60.
    assert 0.05 < np.mean(found) < 0.2


def test_interactions_that_are_not_there_are_found_weak() -> None:
    known = random_field(1, CARDS, (0.2, 0.0))
    given = noisy(known.problem(20_000, 1), 5.0, 1)
    s = interaction_variance(given, denoised(given))
    assert s is not None
    assert s < 0.01


def test_where_noise_hides_everything_weights_may_be_of_any_strength() -> None:
    given = noisy(random_field(1, (3, 3), 0.0).problem(200, 1), 500.0, 1)
    s = interaction_variance(given, denoised(given))
    # Of √s that is as likely anywhere from 0 to 1, s has the mean 1/3.
    assert s == pytest.approx(1 / 3, abs=0.05)


def test_main_effects_are_spread_over_the_tables_where_none_is_left_to_them() -> None:
    given = noisy(random_field(1, CARDS, 0.3).problem(20_000, 1), 5.0, 1)
    clean = denoised(given)
    variances = weight_variances(given, clean)
    s = interaction_variance(given, clean)
    assert variances is not None
    assert s is not None
    assert clean.effects is not None
    each = clean.effects.variances
    for (f, g), variance in zip(given.layout.scopes, variances, strict=True):
        assert variance == pytest.approx(s + (each[f] + each[g]) / 4)  # every feature is in four tables


def test_tables_without_pairs_tell_of_no_interaction() -> None:
    given = noisy(random_field(1, Layout.plain((3, 4), [(0,), (1,)]), 0.3).problem(2000, 1), 5.0, 1)
    assert interaction_variance(given, denoised(given)) is None
    assert weight_variances(given, denoised(given)) is None


def test_a_model_of_noisy_tables_keeps_the_strength_of_its_weights(tmp_path: Path) -> None:
    data = with_noise(random_tables(rows=2000), "gaussian", 5.0, 5.0)
    model = agglearn.fit(data, agglearn.FitSettings(iterations=20, chains=500))
    variances = model.record.variances
    assert variances is not None
    assert len(variances) == model.layout.n_tables
    save_model(model, tmp_path / "a.model")
    assert load_model(tmp_path / "a.model").record.variances == pytest.approx(variances)
    exact = agglearn.fit(random_tables(rows=2000), agglearn.FitSettings(iterations=20, chains=500))
    assert exact.record.variances is None
