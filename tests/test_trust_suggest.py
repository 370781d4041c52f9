"""Which further tables to ask for: the rule against dense algebra, and its advice against fresh records."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

import numpy as np
import pyarrow as pa
import pytest

from agglearn import AggregatedData, Model, Suggestion, aggregate, fit, suggest_tables
from agglearn.datasets import xor
from agglearn.errors import InputError
from agglearn.judge.scores import nllh
from agglearn.tables.scopes import cells_of
from agglearn.tables.table import Scope
from agglearn.train.settings import FitSettings
from agglearn.trust.suggest import free_part
from evidence.tables_only.planted import Planted, plant

SEEDS = (20, 21, 22)
SETTINGS = FitSettings(chains=6000, lambda_theta=8.0)


def tables_of(
    records: pa.Table, like: AggregatedData | None = None, extra: Sequence[Scope] = ()
) -> AggregatedData:
    if like is None:
        return aggregate(records, "click", categorical=["*"])
    return aggregate(records, "click", schema=like.schema, tables=[*like.tables, *extra])


@pytest.fixture(scope="module")
def logs() -> list[tuple[Planted, AggregatedData, Model]]:
    """Three small logs with two planted triples among 56, their pair tables and fields."""
    made = []
    for seed in SEEDS:
        log = plant(seed, rows=40_000, fresh=30_000, features=8, modalities=12, triples=2, scale=1.2)
        pairs = tables_of(log.train)
        made.append((log, pairs, fit(pairs, SETTINGS)))
    return made


# --- the room that tables leave ---------------------------------------------------------------------------


def left_over(h: np.ndarray, margins: Sequence[tuple[int, ...]], penalty: float) -> np.ndarray:
    """Σ_j (I − P)²_kj of each cell k, P the ridge regression on the indicators of the margins' cells."""
    codes = np.array(list(np.ndindex(*h.shape)))
    columns = []
    for gone in margins:
        kept = [i for i in range(h.ndim) if i not in gone]
        ids = np.unique(codes[:, kept], axis=0, return_inverse=True)[1].reshape(-1)
        columns.append(np.eye(ids.max() + 1)[ids])
    design = np.concatenate(columns, axis=1)
    gram = design.T @ (h.reshape(-1, 1) * design) + penalty * np.eye(design.shape[1])
    rest = np.eye(h.size) - design @ np.linalg.solve(gram, design.T * h.reshape(-1))
    squares: np.ndarray = np.square(rest).sum(axis=1)
    return squares


@pytest.mark.parametrize("penalty", [0.5, 20.0])
def test_the_room_is_what_a_ridge_regression_on_the_pairs_leaves(penalty: float) -> None:
    rng = np.random.default_rng(0)
    h = rng.gamma(1.0, 10.0, (4, 3, 5))
    margins = [(0,), (1,), (2,)]
    free = np.mean([free_part(h, margins, penalty, seed) for seed in range(40)], axis=0)
    exact = left_over(h, margins, penalty)
    # 40 · 34 draws tell a mean square within √(2/1360) = 4 %; a few passes of the regression do the rest.
    assert free.reshape(-1) == pytest.approx(exact, rel=0.2, abs=0.02)
    weights = h.reshape(-1)
    assert weights @ free.reshape(-1) == pytest.approx(float(weights @ exact), rel=0.03)


def test_there_is_no_room_where_one_feature_is_a_function_of_another() -> None:
    h = np.zeros((3, 4, 3))
    for a in range(3):
        h[a, :, a] = 100.0
    free = free_part(h, [(0,), (1,), (2,)], 1e-6, seed=0)
    assert (free * h).sum() / h.sum() < 0.01
    whole = np.full((3, 4, 3), 100.0)
    left = free_part(whole, [(0,), (1,), (2,)], 1e-6, seed=0).mean()
    assert left == pytest.approx(2 / 3 * 3 / 4 * 2 / 3, rel=0.1)  # (1 − 1/M) of each feature


# --- the advice -------------------------------------------------------------------------------------------


def test_planted_triples_rank_before_others(logs: list[tuple[Planted, AggregatedData, Model]]) -> None:
    places = []
    for log, pairs, model in logs:
        ranked = suggest_tables(model, pairs, 10**8, top=56)
        assert len(ranked) == 56
        at = {table.features: place for place, table in enumerate(ranked, 1)}
        places += [at[scope] for scope in log.triples]
    # By chance the mean of six places is 28.5 with a standard deviation of 6.6.
    assert fmean(places) < 15


def test_fresh_records_gain_more_from_the_tables_that_rank_first(
    logs: list[tuple[Planted, AggregatedData, Model]],
) -> None:
    gains: list[float] = []
    random: list[float] = []
    rng = np.random.default_rng(1)
    for log, pairs, model in logs:
        schema = pairs.schema
        codes, y = schema.encode(log.fresh), schema.encode_labels(log.fresh)[0] == 1
        base = nllh(y, model.field.log_odds(codes))
        first = [table.features for table in suggest_tables(model, pairs, 4000, top=4)]
        cells = sum(cells_of(scope, schema).size for scope in first)
        every = [scope for scope in combinations(schema.names, 3) if scope not in first]
        draws = [[every[i] for i in rng.choice(len(every), 4, replace=False)] for _ in range(200)]
        near = sorted(draws, key=lambda scopes: abs(sum(cells_of(s, schema).size for s in scopes) - cells))[
            :2
        ]
        for scopes, found in ((first, gains), *((scopes, random) for scopes in near)):
            wider = fit(tables_of(log.train, pairs, scopes), SETTINGS)
            found.append(nllh(y, wider.field.log_odds(codes)) - base)
    assert fmean(gains) > fmean(random) + 0.003
    assert fmean(gains) > 0.003


def test_xor_asks_for_its_triple() -> None:
    pairs = aggregate(xor(5000, seed=0), "y", categorical=["*"], tables="pairs")
    model = fit(pairs, FitSettings(chains=1000))
    (table,) = suggest_tables(model, pairs)
    assert (table.name, table.cells) == ("x1 × x2 × x3", 8)
    assert table.gain > 0
    # τ² = strain²/2λ, of which the room is left: how far log-odds could move.
    lambda_theta = model.record.lambda_theta
    assert table.shift == pytest.approx(np.sqrt(table.strain**2 / (2 * lambda_theta) * table.room))


def test_gains_are_told_in_the_entropy_of_the_models_own_label() -> None:
    """Small features are drawn without proposals: tables of other records then change nothing."""
    records = xor(5000, seed=0)
    pairs = aggregate(records, "y", categorical=["*"], tables="pairs")
    kept = (records["y"].to_numpy() == 0) | (np.arange(5000) % 3 == 0)  # a third of the positives
    other = aggregate(records.filter(kept), "y", schema=pairs.schema)
    assert other.positives[0] / other.rows < 0.7 * pairs.positives[0] / pairs.rows
    model = fit(pairs, FitSettings(chains=1000))
    assert suggest_tables(model, other) == suggest_tables(model, pairs)


# --- the budget and the rest ------------------------------------------------------------------------------


def test_the_budget_the_number_and_the_size_are_kept(
    logs: list[tuple[Planted, AggregatedData, Model]],
) -> None:
    _, pairs, model = logs[0]
    for budget, size, top in ((300, 3, 10), (2000, 4, 5), (10_000, 4, 50)):
        found = suggest_tables(model, pairs, budget, size=size, top=top)
        assert 0 < len(found) <= top
        assert sum(table.cells for table in found) <= budget
        assert all(3 <= len(table.features) <= size for table in found)
        assert all(table.cells == cells_of(table.features, pairs.schema).size for table in found)
        assert [t.gain for t in found] == sorted((t.gain for t in found), reverse=True)
        for a, b in combinations(found, 2):
            assert not set(a.features) <= set(b.features)
            assert not set(a.features) >= set(b.features)
    assert any(len(t.features) == 4 for t in suggest_tables(model, pairs, 10_000, size=4, top=50))
    assert suggest_tables(model, pairs, 7) == []  # no triple of this log is so small


def test_the_first_of_a_short_list_are_the_first_of_a_long_one(
    logs: list[tuple[Planted, AggregatedData, Model]],
) -> None:
    """Judging stops early where no better set can come: it must not miss one."""
    _, pairs, model = logs[1]
    for budget in (10**8, 3000):
        long = suggest_tables(model, pairs, budget, top=56)
        assert suggest_tables(model, pairs, budget, top=5) == long[:5]


def test_a_table_that_is_there_is_not_asked_for_but_an_absent_pair_is(
    logs: list[tuple[Planted, AggregatedData, Model]],
) -> None:
    log, pairs, model = logs[2]
    best = suggest_tables(model, pairs, 5000, top=1)[0]
    absent = best.features[:2]
    kept = [scope for scope in pairs.tables if scope != absent]
    data = aggregate(log.train, "click", schema=pairs.schema, tables=[*kept, ("f03", "f04", "f05")])
    again = fit(data, SETTINGS)
    found = [table.features for table in suggest_tables(again, data, 10**8, size=2, top=100)]
    assert found == [absent]
    found = [table.features for table in suggest_tables(again, data, 10**8, top=100)]
    assert ("f03", "f04", "f05") not in found


def test_the_advice_does_not_depend_on_threads(logs: list[tuple[Planted, AggregatedData, Model]]) -> None:
    _, pairs, model = logs[0]
    one, two = (suggest_tables(model, pairs, 5000, top=3, threads=n) for n in (1, 2))
    assert one == two
    assert isinstance(one[0], Suggestion)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget_cells": 0}, "budget of cells 0"),
        ({"size": 1}, "size 1"),
        ({"top": 0}, "top 0"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    logs: list[tuple[Planted, AggregatedData, Model]], options: dict[str, int], words: str
) -> None:
    _, pairs, model = logs[0]
    with pytest.raises(InputError, match=words):
        suggest_tables(model, pairs, **options)
