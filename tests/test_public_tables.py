"""Public tables of X beside noisy tables of the records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import agglearn
from agglearn.errors import InputError
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem, TableNoise
from agglearn.field.public import PublicTable, with_public
from agglearn.model.format import load_model
from agglearn.tables.data import AggregatedData
from tests.conftest import Cli
from tests.fields import KnownField, columns, pairs, random_field, tables_of, with_noise

CARDS = (4, 3, 5, 3)
ROWS = 3000
SIGMA = 60.0


def noisy(problem: Problem, seed: int, classes: bool = False) -> Problem:
    """Noise on counts and sums, or on negatives and positives."""
    first, second = np.random.default_rng(seed).normal(0, SIGMA, (2, problem.d.size))
    each = np.full(problem.layout.n_tables, SIGMA)
    if not classes:
        return replace(problem, d=problem.d + first, c=problem.c + second, noise=TableNoise(each, each))
    noise = TableNoise(np.sqrt(2) * each, each, np.square(each))
    return replace(problem, d=problem.d + first + second, c=problem.c + second, noise=noise)


def counted(field: KnownField, rows: int, scope: tuple[int, ...], seed: int) -> PublicTable:
    codes, _ = field.draw(rows, seed)
    counts = np.zeros([CARDS[f] for f in scope])
    np.add.at(counts, tuple(codes[:, f] for f in scope), 1)
    return PublicTable(scope, counts)


def test_one_cell_is_told_as_two_normal_measurements_are_put_together() -> None:
    layout = Layout.plain((2,), [(0,)])
    noise = TableNoise(np.array([np.sqrt(2) * SIGMA]), np.array([SIGMA]), np.array([SIGMA**2]))
    problem = Problem(layout, np.array([520.0, 480.0]), np.array([200.0, 100.0]), 1000.0, 300.0, noise=noise)
    told, [trust] = with_public(problem, [PublicTable((0,), np.array([100_000.0, 100_000.0]))])
    w = 1000 * 0.25 * (1 + 1000 / 200_000)
    gain = 2 * SIGMA**2 / (2 * SIGMA**2 + w)  # 20 apart is less than noise explains: one population
    assert trust.apart == 0
    assert trust.weight == pytest.approx(gain)
    assert told.d == pytest.approx([520 - 20 * gain, 480 + 20 * gain])
    assert told.c == pytest.approx([200 - 10 * gain, 100 + 10 * gain])  # half of the noise is the positives'
    assert told.noise is not None
    assert told.noise.counts[0] ** 2 == pytest.approx(2 * SIGMA**2 * (1 - gain))
    assert told.noise.sums[0] ** 2 == pytest.approx(SIGMA**2 * (1 - gain / 2))


@pytest.mark.parametrize("classes", [False, True], ids=["numbers", "classes"])
@pytest.mark.parametrize("scope", [(0,), (2,), (0, 2)], ids=str)
def test_counts_come_nearer_to_the_exact_ones(scope: tuple[int, ...], classes: bool) -> None:
    before: list[float] = []
    after: list[float] = []
    weights: list[float] = []
    for seed in range(10):
        field = random_field(seed, CARDS)
        exact = field.problem(ROWS, seed)
        given = noisy(exact, seed, classes)
        told, [trust] = with_public(given, [counted(field, 50_000, scope, 100 + seed)])
        weights.append(trust.weight)
        for problem, found in ((given, before), (told, after)):
            away = [
                problem.layout.table(problem.d - exact.d, t).sum(
                    axis=tuple(i for i, f in enumerate(own) if f not in scope)
                )
                for t, own in enumerate(problem.layout.scopes)
                if set(scope) <= set(own)
            ]
            found.append(float(np.mean(np.square(np.mean(away, axis=0)))))
    # Inverse-variance weights leave 1 − K of the squared error; ± 0.1 of it over ten fields.
    assert np.mean(weights) > 0.5
    assert np.mean(after) < (1 - np.mean(weights) + 0.25) * np.mean(before)


def test_a_table_of_other_people_is_hardly_trusted() -> None:
    here, there = random_field(1, CARDS, 0.8), random_field(2, CARDS, 0.8)
    given = noisy(here.problem(ROWS, 1), 1)
    own, strange = (with_public(given, [counted(f, 50_000, (0, 2), 9)])[1][0] for f in (here, there))
    assert own.apart < 0.15 < strange.apart
    assert strange.weight < 0.5 * own.weight


def test_a_value_that_is_not_there_in_public_does_not_vanish() -> None:
    field = random_field(3, CARDS, 0.3)
    given = noisy(field.problem(ROWS, 3), 3)
    public = counted(field, 50_000, (0,), 9)
    counts = public.counts.copy()
    counts[1] = 0.0
    told, _ = with_public(given, [replace(public, counts=counts)])
    before, after = (p.layout.table(p.d, 0).sum(axis=1)[1] for p in (given, told))
    assert after > 0.5 * before


def test_exact_tables_need_nothing_of_it() -> None:
    exact = random_field(1, CARDS).problem(ROWS, 1)
    told, [trust] = with_public(exact, [counted(random_field(1, CARDS), 1000, (0,), 2)])
    assert told is exact
    assert trust.weight == 0


def test_a_fit_gains_by_public_tables_and_does_not_lose_by_records() -> None:
    gains = []
    singles = Layout.plain(CARDS, [(f,) for f in range(len(CARDS))])
    for seed in range(4):
        field = random_field(seed, CARDS, (0.8, 0.5))
        data = with_noise(field.tables(ROWS, seed), "gaussian", 20.0, 20.0, seed)
        codes, y = field.draw(20_000, 50 + seed)
        of_x: list[dict[str, Any]] = [
            {},
            {"public_tables": tables_of(singles, codes, y)},
            {"public_tables": tables_of(pairs(CARDS), codes, y)},
            {"records": columns(codes)},
        ]
        states = np.ascontiguousarray(field.states.T)
        losses = []
        for known in of_x:
            settings = agglearn.FitSettings(chains=2000, iterations=150, seed=seed)
            z = agglearn.fit(data, settings, threads=1, **known).field.log_odds(states, 1)
            # The log loss over the very law: no record is drawn.
            losses.append(field.law[:, 0] @ np.logaddexp(0, z) + field.law[:, 1] @ np.logaddexp(0, -z))
        gains.append([losses[0] - loss for loss in losses[1:]])
    # Over ten fields: 0.0019 ± 0.0007, 0.0049 ± 0.0019 and -0.0007 ± 0.0007 (standard errors).
    by_singles, by_pairs, by_records = np.mean(gains, axis=0)
    assert by_singles > 0
    assert by_pairs > 0
    assert by_records > -0.005


@pytest.fixture
def private() -> AggregatedData:
    return with_noise(random_field(1, CARDS).tables(ROWS, 1), "gaussian", SIGMA, SIGMA)


def test_the_command_line_takes_a_file_of_margins(
    private: AggregatedData, run_cli: Cli, tmp_path: Path
) -> None:
    agglearn.save(private, tmp_path / "a.agg")
    margins = {"f0": list(private.schema.features[0].modalities), "count": [9000, 8000, 7000, 6000]}
    pacsv.write_csv(pa.table(margins), tmp_path / "census.csv")
    short = ["--iterations", 20, "--chains", 500, "-o", tmp_path / "a.model"]
    done = run_cli("fit", tmp_path / "a.agg", "--public-tables", tmp_path / "census.csv", *short)
    assert done.code == 0, done.err
    assert "30,000" in done.out
    [used] = load_model(tmp_path / "a.model").record.used["public"]
    assert (used["scope"], used["rows"]) == ("f0", 30_000)


def test_public_tables_that_cannot_be_used_are_refused_in_one_line(run_cli: Cli, tmp_path: Path) -> None:
    exact = random_field(1, Layout.plain(CARDS, [(0,), (1,)])).tables(ROWS, 1)
    singles = with_noise(exact, "gaussian", SIGMA, SIGMA)
    agglearn.save(singles, tmp_path / "a.agg")
    codes, _ = random_field(1, CARDS).draw(100, 1)
    pacsv.write_csv(
        pa.table({"f0": columns(codes)["f0"], "f1": columns(codes)["f1"], "count": np.ones(100, int)}),
        tmp_path / "pairs.csv",
    )
    short = ["--iterations", 20, "-o", tmp_path / "a.model"]
    done = run_cli("fit", tmp_path / "a.agg", "--public-tables", tmp_path / "pairs.csv", *short)
    assert done.code == 2
    assert "f0 × f1" in done.err
    assert done.err.strip().count("\n") == 0
    assert not (tmp_path / "a.model").exists()
    other = agglearn.aggregate({"f0": ["a", "b"] * 5, "y": [0, 1] * 5}, "y")
    with pytest.raises(InputError, match="another schema"):
        agglearn.fit(singles, public_tables=other)
