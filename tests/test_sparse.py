"""Sparse tables: dense ones whose unseen cells are tied, and cost nothing.

Wherever a dense table can be made, it is what a sparse one is compared with.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import agglearn
from agglearn.aggregation.tally import Tally
from agglearn.field.engines import local
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.engines.local import LocalEngine
from agglearn.field.field import Field
from agglearn.field.kernels import plan
from agglearn.field.kernels.lists import lists_of
from agglearn.field.kernels.score import score_codes, tally
from agglearn.field.kernels.sets import score_sets, tally_sets
from agglearn.field.layout import Layout
from agglearn.field.margins import mutual_information
from agglearn.field.problem import Problem, make_problem
from agglearn.field.proposals import build_proposals
from agglearn.field.start import tree_start
from agglearn.judge.scores import score_predictions
from agglearn.judge.tree_bayes import tree_augmented_nb
from agglearn.model.draw import sample
from agglearn.model.format import load_model, save_model
from agglearn.privacy.release import simulate
from agglearn.receive import receive_tables
from agglearn.runtime.random import Numbers
from agglearn.tables.cells import DenseCells, SparseCells, is_dense, seen_cells
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import load, save
from agglearn.tables.scopes import shape_of
from agglearn.tables.table import Table
from agglearn.train.checkpoint import Checkpoints
from agglearn.train.loop import fit
from agglearn.train.mains import with_mains
from agglearn.train.settings import FitSettings
from agglearn.trust.intervals import model_posterior
from tests.fields import (
    as_seen,
    cells_of,
    count,
    every_state,
    random_field,
    schema_of,
    sparse_layout,
)

Floats = npt.NDArray[np.float64]

CARDS = (7, 5, 6, 3)
PAIRS = Layout.plain(CARDS, list(combinations(range(4), 2)))


def long_records(n: int = 6000, seed: int = 0, most: int = 400) -> dict[str, Any]:
    """Two columns of many values that depend on each other, two of few, and a label that depends on all."""
    rng = np.random.default_rng(seed)
    a = (most * rng.random(n) ** 3).astype(int)
    b = (a // 2 + (most / 2 * rng.random(n) ** 4).astype(int)) % most
    c, d = rng.integers(0, 6, n), rng.integers(0, 3, n)
    effect = np.random.default_rng(99).normal(0, 1, most)
    odds = effect[a] + 0.5 * effect[b] + 0.3 * c - 1
    y = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int)
    texts = {"a": [f"a{v}" for v in a], "b": [f"b{v}" for v in b], "c": [f"c{v}" for v in c]}
    return {**texts, "d": [f"d{v}" for v in d], "y": y}


def dense(data: AggregatedData) -> AggregatedData:
    """The same tables with a cell for every combination."""
    tables = {s: t.over(DenseCells(shape_of(s, data.schema))) for s, t in data.tables.items()}
    return replace(data, tables=tables)


@pytest.fixture(scope="module")
def long() -> AggregatedData:
    return agglearn.aggregate(long_records(), "y", min_modality_count=1)


@pytest.fixture(scope="module")
def fitted(long: AggregatedData) -> agglearn.Model:
    return agglearn.fit(long)


# --- cells ------------------------------------------------------------------------------------------------


def test_a_listed_combination_has_its_cell_and_all_others_share_the_last() -> None:
    cells = SparseCells((4, 5, 3), np.array([2, 17, 18, 59]))
    codes = every_state((4, 5, 3)).T
    places = {2: 0, 17: 1, 18: 2, 59: 3}
    assert cells.find(codes).tolist() == [places.get(rank, 4) for rank in range(60)]
    assert cells.tied == 56
    assert cells.codes(2) == (1, 1, 0)
    assert cells.codes(4) is None
    np.testing.assert_array_equal(cells.find(cells.all_codes(np.arange(4))), np.arange(4))


@pytest.mark.parametrize("kept", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_margins_are_those_of_the_dense_table_with_the_rest_spread_evenly(kept: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    cells = SparseCells((4, 5, 3), np.sort(rng.choice(60, 20, replace=False)))
    numbers = rng.normal(size=(2, 21))
    whole = np.repeat(numbers[:, -1:] / 40, 60, axis=1)
    whole[:, cells.listed] = numbers[:, :-1]
    others = tuple(1 + i for i in range(3) if i not in kept)
    expected = whole.reshape(2, 4, 5, 3).sum(axis=others)
    np.testing.assert_allclose(cells.margin(numbers, kept), expected, atol=1e-12)


def test_a_table_is_sparse_where_it_is_large_and_at_most_a_third_was_seen() -> None:
    assert is_dense((64, 64), 0)
    assert not is_dense((64, 65), 0)
    assert not is_dense((300, 300), 30_000)
    assert is_dense((300, 300), 30_001)
    assert is_dense((100_000,), 1)
    assert isinstance(seen_cells((300, 300), np.arange(30_000)), SparseCells)


# --- counting ---------------------------------------------------------------------------------------------


def plainly(data: AggregatedData, records: dict[str, Any], scope: tuple[str, ...]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for *values, y in zip(*(records[name] for name in scope), records["y"], strict=True):
        entry = found.setdefault(tuple(values), [0, 0])
        entry[0] += 1
        entry[1] += int(y)
    return found


def listed_numbers(data: AggregatedData, table: Table) -> dict[Any, list[int]]:
    codes = table.cells.all_codes(np.arange(table.n_cells - bool(table.cells.tied)))
    names = [data.schema.feature(f).modalities for f in table.features]
    keys = zip(*([m[c] for c in row] for m, row in zip(names, codes, strict=True)), strict=True)
    numbers = zip(table.counts.reshape(-1).tolist(), table.sums[0].reshape(-1).tolist(), strict=True)
    return {key: list(n) for key, n in zip(keys, numbers, strict=False) if any(n)}


def test_counts_are_those_of_a_plain_loop_and_none_is_in_the_rest(long: AggregatedData) -> None:
    records = long_records()
    kinds = set()
    for scope, table in long.tables.items():
        assert listed_numbers(long, table) == plainly(long, records, scope)
        kinds.add(type(table.cells))
        if table.cells.tied:
            assert table.counts[-1] == 0
            assert table.counts[:-1].min() > 0
    assert kinds == {DenseCells, SparseCells}


def test_many_small_batches_two_labels_and_unknown_values_count_as_dense_counters_do() -> None:
    schema = schema_of((90, 80, 70), ("y", "z"))
    rng = np.random.default_rng(3)
    codes = np.stack([rng.integers(0, m + 1, 4000) for m in schema.cards]).astype(np.uint16)
    codes[:, :2000] %= 12  # at first few combinations come up
    labels = rng.integers(0, 2, (2, 4000)).astype(np.uint8)
    scopes = [("f0", "f1"), ("f1", "f2"), ("f0", "f1", "f2"), ("f0",)]
    counted = Tally(schema, scopes)
    for start in range(0, 4000, 37):
        counted.add(np.ascontiguousarray(codes[:, start : start + 37]), labels[:, start : start + 37])
    for scope, table in counted.tables().items():
        cards = shape_of(scope, schema)
        own = codes[[schema.index[f] for f in scope]]
        known = (own < np.array(cards)[:, None]).all(axis=0)
        expected = np.zeros((3, *cards), np.int64)
        at = tuple(own[:, known].astype(np.int64))
        for layer, weight in zip(expected, (np.ones(4000, np.int64), *labels.astype(np.int64)), strict=True):
            np.add.at(layer, at, weight[known])
        whole = table.over(DenseCells(cards))
        np.testing.assert_array_equal(whole.counts, expected[0])
        np.testing.assert_array_equal(whole.sums, expected[1:])
        assert table.total == 4000


def test_a_table_goes_over_to_counters_for_all_cells_when_every_third_has_come_up() -> None:
    schema = schema_of((80, 80))
    codes = every_state((80, 80)).T.copy()
    counted = Tally(schema, [("f0", "f1")])
    for start in range(0, 6400, 500):
        part = np.ascontiguousarray(codes[:, start : start + 500])
        counted.add(part, np.zeros((1, part.shape[1]), np.uint8))
    table = counted.tables()["f0", "f1"]
    assert table.cells.dense
    assert (table.counts == 1).all()


def test_merging_parts_that_saw_different_cells_equals_aggregating_the_whole() -> None:
    records = pa.table(long_records(4000))
    whole = agglearn.aggregate(records, "y", min_modality_count=1)
    parts = [agglearn.aggregate(records.slice(i, 900), "y", schema=whole.schema) for i in range(0, 4000, 900)]
    listed = {p.tables["a", "b"].n_cells for p in parts}
    assert len(listed) > 1
    assert agglearn.merge(parts).equals(whole)
    assert not agglearn.merge(parts[:-1]).equals(whole)


def test_what_was_added_can_be_taken_away_and_compared_as_dense_tables_are() -> None:
    records = pa.table(long_records(4000))
    whole = agglearn.aggregate(records, "y", min_modality_count=1)
    first, second = (agglearn.aggregate(records.slice(i, 2000), "y", schema=whole.schema) for i in (0, 2000))
    for scope, table in whole.tables.items():
        left = table - second.tables[scope]
        assert left.cells.tied == first.tables[scope].cells.tied or left.cells.dense
        np.testing.assert_array_equal(left.over(first.tables[scope].cells).counts, first.tables[scope].counts)
    sparse, plain = agglearn.drift(first, second), agglearn.drift(dense(first), dense(second))
    assert sparse.to_json() == plain.to_json()


def test_tables_of_a_vocabulary_that_grew_are_those_of_the_dense_table() -> None:
    old = agglearn.aggregate(long_records(2000, most=300), "y", min_modality_count=1)
    table = old.tables["a", "b"]
    cards = shape_of(("a", "b"), old.schema)
    grown = tuple(card + 3 for card in cards)
    places = [np.sort(np.random.default_rng(k).choice(n, n - 3, replace=False)) for k, n in enumerate(grown)]
    moved, plain = table.moved(places, grown), table.over(DenseCells(cards)).moved(places, grown)
    assert isinstance(moved.cells, SparseCells)
    np.testing.assert_array_equal(moved.over(DenseCells(grown)).counts, plain.counts)
    np.testing.assert_array_equal(moved.over(DenseCells(grown)).sums, plain.sums)


def test_cells_follow_what_is_seen_however_many_there_could_be() -> None:
    found = []
    for times in (1, 8):
        rng = np.random.default_rng(0)
        columns = {f"x{k}": (times * 100 * rng.random(3000) ** 2).astype(int) for k in range(5)}
        data = agglearn.aggregate(
            {**columns, "y": rng.integers(0, 2, 3000)}, "y", categorical=["*"], min_modality_count=1
        )
        found.append((data.n_cells, sum(int(np.prod(shape_of(s, data.schema))) for s in data.tables)))
    (cells, combinations), (more_cells, more_combinations) = found
    assert more_combinations > 50 * combinations
    assert more_cells <= 10 * (3000 + 1)  # a cell a record and table, and the rests
    assert more_cells < 2 * cells


def test_a_sparse_table_comes_back_from_its_folder(long: AggregatedData, tmp_path: Path) -> None:
    save(long, tmp_path / "long.agg")
    back = load(tmp_path / "long.agg")
    assert back.equals(long)
    assert back.tables["a", "b"].cells == long.tables["a", "b"].cells
    # Nor does it matter which kind of cells the same numbers stand in.
    save(dense(long), tmp_path / "dense.agg")
    assert load(tmp_path / "dense.agg").equals(long)


def test_margins_of_a_sparse_triple_are_sparse_where_they_are_large() -> None:
    data = agglearn.aggregate(long_records(), "y", tables="triples", min_modality_count=1)
    pairs = agglearn.aggregate(long_records(), "y", schema=data.schema)
    for scope in (("a", "b"), ("a", "c"), ("c", "d")):
        summed = data.table(*scope)
        assert summed.cells == pairs.tables[scope].cells
        np.testing.assert_array_equal(summed.counts, pairs.tables[scope].counts)
        np.testing.assert_array_equal(summed.sums, pairs.tables[scope].sums)


def test_withheld_cells_of_a_sparse_table_share_what_is_missing(tmp_path: Path) -> None:
    """Of 100 × 100 cells 30 are given with 10 records each; 340 records have to be elsewhere."""
    path = tmp_path / "t.csv"
    values = "".join(f"a{i},b{i},0,0\n" for i in range(100))  # the vocabulary, with no record
    rows = "".join(f"a{i},b{(i * 7) % 100},10,3\n" for i in range(1, 31))
    path.write_text("a,b,count,y\n" + rows + values)
    options: dict[str, Any] = {"label": "y", "absent": "unmeasured", "rows": 640, "positives": [200]}
    data = receive_tables(path, **options)
    table = data.tables["a", "b"]
    assert isinstance(table.cells, SparseCells)
    problem, plain = make_problem(data), make_problem(dense(data))
    assert problem.free is not None
    assert plain.free is not None
    assert problem.free.sum() == plain.free.sum() == 130
    assert problem.d[-1] == pytest.approx(plain.d[~plain.free].sum()) == pytest.approx(340)
    assert problem.c[-1] == pytest.approx(plain.c[~plain.free].sum())
    np.testing.assert_allclose(with_mains(problem).d[-200:], with_mains(plain).d[-200:])


# --- the field --------------------------------------------------------------------------------------------


def tied(layout: Layout, vector: Floats, whole: Layout) -> Floats:
    """The weights of a sparse layout written into a dense one: unseen cells have that of the rest."""
    states = every_state(whole.cards)
    found = np.zeros(whole.n_cells)
    for mine, its in zip(cells_of(layout, states), cells_of(whole, states), strict=True):
        found[its] = vector[mine]
    return found


def test_scores_and_tallies_are_those_of_the_dense_field_with_tied_weights() -> None:
    layout = sparse_layout(PAIRS, 0.3)
    rng = np.random.default_rng(1)
    codes = np.stack([rng.integers(0, m, 5000) for m in CARDS]).astype(np.uint16)
    weights = rng.normal(size=layout.n_cells)
    scores = score_codes(codes, layout, weights, 0.25)
    np.testing.assert_allclose(scores, score_codes(codes, PAIRS, tied(layout, weights, PAIRS), 0.25))
    d, c = tally(codes, scores, layout, 2)
    np.testing.assert_array_equal(d, count(layout, codes.T)[0])
    for t in range(layout.n_tables):
        np.testing.assert_allclose(c[layout.part(t)].sum(), scores.sum())
    both = np.stack([weights, 2 * weights], axis=1).astype(np.float32)
    np.testing.assert_allclose(score_sets(codes, layout, both)[:, 1], 2 * (scores - 0.25), atol=1e-4)
    np.testing.assert_array_equal(tally_sets(codes, np.ones((5000, 1), np.float32), layout)[:, 0], d)
    # A value that is unknown adds nothing, neither does it count for one that was not seen.
    codes[2, :10] = CARDS[2]
    without = [t for t, scope in enumerate(layout.scopes) if 2 not in scope]
    expected = sum(
        weights[layout.part(t)][layout.cells[t].find(codes[list(layout.scopes[t])])] for t in without
    )
    np.testing.assert_allclose(score_codes(codes, layout, weights, 0.0)[:10], np.asarray(expected)[:10])


@pytest.mark.parametrize(("listed", "marked"), [(1, False), (40, False), (600, True), (20_000, True)])
@pytest.mark.parametrize("cards", [(190, 210), (19, 21, 100)])
def test_a_cell_is_found_by_marks_or_slots_where_a_search_of_the_list_finds_it(
    cards: tuple[int, ...], listed: int, marked: bool
) -> None:
    """The first and the last combination are listed, so that both ends of the index are looked at."""
    size, rng = prod(cards), np.random.default_rng(listed)
    ranks = np.unique(np.append(rng.choice(size, listed, replace=False), [0, size - 1]))
    cells = SparseCells(cards, ranks)
    beside = SparseCells(cards, np.arange(0, size, 1000))  # in the same index, of the other kind or not
    scope = tuple(range(len(cards)))
    layout = Layout(cards, (scope, scope, scope), (beside, cells, beside))
    assert lists_of(layout).marked[1] == marked
    codes = np.stack(np.unravel_index(np.arange(size), cards)).astype(np.uint16)
    d = tally(codes, np.zeros(size), layout)[0]
    for t, own in enumerate(layout.cells):
        expected = np.bincount(own.find(codes), minlength=own.size)
        np.testing.assert_array_equal(d[layout.part(t)], expected)
    weights = np.zeros(layout.n_cells)
    weights[layout.part(1)] = np.arange(cells.size)
    np.testing.assert_array_equal(score_codes(codes, layout, weights, 0.0), cells.find(codes))


def test_rows_that_are_written_out_move_chains_as_their_lists_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tables of each feature: dense, listed, and of three features."""
    scopes = ((0, 1), (0, 2), (1, 2), (0, 1, 2), (2, 3))
    layout = sparse_layout(Layout.plain((23, 5, 17, 3), scopes), 0.3, tables=[1, 3])
    field = random_field(3, layout, 0.5)
    chains = np.zeros((4, 3_000), np.uint16)
    found = []
    for most in (0, 10_000):
        monkeypatch.setattr(plan, "_WRITTEN_OUT", most)
        assert plan.written_out(layout, {0, 1, 2, 3}) == ([0, 1, 2] if most else [])
        engine = LocalEngine(layout, chains, 1.0, Numbers(1), 2)
        for iteration in range(5):
            engine.sweep(field, iteration)
        found.append(engine.chains)
    assert len(np.unique(found[0], axis=1).T) > 1_000
    np.testing.assert_array_equal(found[0], found[1])


def test_expectations_are_those_of_the_dense_field_with_tied_weights() -> None:
    layout = sparse_layout(PAIRS, 0.3)
    field = random_field(4, layout)
    plain = Field(PAIRS, tied(layout, field.mu, PAIRS), tied(layout, field.theta, PAIRS), field.intercept)
    law = ExactEngine(layout, 1.0).probabilities(field)
    np.testing.assert_allclose(law, ExactEngine(PAIRS, 1.0).probabilities(plain), atol=1e-15)
    np.testing.assert_allclose(law, field.law, atol=1e-15)
    d = ExactEngine(layout, 1000.0).expect(field).d
    np.testing.assert_allclose(d, 1000 * count_law(layout, field.law.sum(axis=1)), atol=1e-9)


def count_law(layout: Layout, law: Floats) -> Floats:
    found = np.zeros(layout.n_cells)
    for cells in cells_of(layout, every_state(layout.cards)):
        np.add.at(found, cells, law)
    return found


@pytest.fixture(scope="module")
def few() -> Problem:
    """Tables of 90 records over 630 states, so that most cells hold none."""
    return random_field(5, CARDS, 1.0).problem(90, 7)


@pytest.mark.parametrize("tables", [[], [0, 3], [1, 2, 4, 5]])
def test_the_tree_start_is_the_same_law_with_sparse_tables(few: Problem, tables: list[int]) -> None:
    """μ describes the smoothed and raked tree, in which all unseen cells of an edge have one factor."""
    problem, plain = with_mains(as_seen(few, tables)), with_mains(few)
    seen = {p: mutual_information(p.layout, p.d) for p in (problem, plain)}
    assert seen[problem] == pytest.approx(seen[plain])
    laws = []
    for p in (problem, plain):
        start = tree_start(p.layout, p.d, p.rows, 40_000, Numbers(0))
        field = Field(p.layout, start.mu, np.zeros_like(start.mu), 0.0)
        law = ExactEngine(p.layout, 1.0).probabilities(field).sum(axis=1)
        laws.append(law)
        drawn = np.ravel_multi_index(tuple(start.chains.astype(np.int64)), CARDS)
        share = np.bincount(drawn, minlength=law.size) / 40_000
        # Half the summed differences of 630 shares from independent draws would be 0.04.
        assert np.abs(share - law).sum() / 2 < 0.04
    np.testing.assert_allclose(laws[0], laws[1], atol=1e-9)


def test_a_fit_with_sparse_tables_predicts_what_the_dense_one_predicts(few: Problem) -> None:
    """The penalty of a tied weight is that of all its cells, so the two differ by how far a cell's own μ
    moves: both by the exact engine, on the same 90 records."""
    settings = FitSettings(engine="exact", lambda_theta=2.0, iterations=300, tolerance=0.0)
    plain, sparse = fit(with_mains(few), settings), fit(as_seen(few), settings)
    states = every_state(CARDS).T.astype(np.uint16)
    a, b = plain.field.log_odds(states), sparse.field.log_odds(states)
    laws = [f.engine.population(f.field).law for f in (plain, sparse)]  # type: ignore[attr-defined]
    assert np.sqrt((laws[0] * (a - b) ** 2).sum()) < 0.02 * np.sqrt((laws[0] * (a - a.mean()) ** 2).sum())
    assert np.abs(laws[0] - laws[1]).sum() / 2 < 0.02
    assert not sparse.field.theta[sparse.problem.layout.tied].any()


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch, long: AggregatedData) -> None:
    monkeypatch.setattr(local, "_WORTH", 1)
    settings = FitSettings(chains=2000, iterations=12)
    fits = [fit(make_problem(long), settings, threads=threads) for threads in (1, 2, 3)]
    for other in fits[1:]:
        np.testing.assert_array_equal(other.field.mu, fits[0].field.mu)
        np.testing.assert_array_equal(other.field.theta, fits[0].field.theta)
        np.testing.assert_array_equal(other.engine.chains, fits[0].engine.chains)


def test_codes_of_32_bits_move_as_those_of_16_do() -> None:
    """Of 70,000 values 40 have all the weight: a field of these 40 has the same law."""
    wide, narrow = 70_000, 40
    values = np.sort(np.random.default_rng(0).choice(wide, narrow, replace=False))
    listed = np.sort(np.concatenate([values * 3, values * 3 + 1]))
    layout = Layout((wide, 3), ((0,), (0, 1)), (DenseCells((wide,)), SparseCells((wide, 3), listed)))
    small = Layout.plain((narrow, 3), [(0,), (0, 1)])
    field = random_field(3, small, 1.0)
    mu = np.concatenate([np.full(wide, -40.0), np.zeros(listed.size), [0.0]])
    mu[values] = field.mu[:narrow]
    theta = np.zeros(layout.n_cells)
    pairs = {k: field.__dict__[k][narrow:].reshape(narrow, 3) for k in ("mu", "theta")}
    for vector, pair in ((mu, pairs["mu"]), (theta, pairs["theta"])):
        pair[:, 2] = 0.0  # that of the rest
        vector[wide:-1] = pair[:, :2].reshape(-1)
    theta[values] = field.theta[:narrow]
    d = np.ones(layout.n_cells)
    d[values] = 1e6
    engine = LocalEngine(
        layout,
        np.stack([np.full(30_000, values[0]), np.zeros(30_000, np.int64)]).astype(np.uint32),
        1.0,
        Numbers(1),
        2,
        build_proposals(layout, d),
    )
    assert engine.chains.dtype == np.uint32
    for iteration in range(60):
        engine.sweep(Field(layout, mu, theta, field.intercept), iteration)
    found = np.searchsorted(values, engine.chains[0]) * 3 + engine.chains[1]
    share = np.bincount(found, minlength=120) / 30_000
    law = field.law.sum(axis=1)
    # Five standard errors of each share of 30,000 independent chains.
    assert (np.abs(share - law) < 5 * np.sqrt(law * (1 - law) / 30_000) + 1e-4).all()


# --- downstream -------------------------------------------------------------------------------------------


def nllh(model: agglearn.Model, records: dict[str, Any]) -> float:
    codes = model.schema.encode(pa.table(records))
    return float(score_predictions(np.array(records["y"], np.uint8), model.field.log_odds(codes)).nllh)


def test_a_sparse_fit_is_as_good_as_the_dense_one(long: AggregatedData, fitted: agglearn.Model) -> None:
    """On 6,000 other records; of dense fits with three other seeds NLLH spreads by 0.0006."""
    others = long_records(6000, seed=1)
    plain = agglearn.fit(dense(long))
    assert fitted.layout.n_cells < plain.layout.n_cells / 10
    assert nllh(fitted, others) > nllh(plain, others) - 0.002


def test_a_sparse_model_comes_back_from_its_folder(fitted: agglearn.Model, tmp_path: Path) -> None:
    save_model(fitted, tmp_path / "m.model")
    back = load_model(tmp_path / "m.model")
    assert back.layout == fitted.layout
    records = long_records(500, seed=2)
    assert nllh(back, records) == nllh(fitted, records)


def test_tables_of_other_records_score_a_sparse_model(long: AggregatedData, fitted: agglearn.Model) -> None:
    """Cells that only the other records have are in the rest, whose weight is that of any unseen cell."""
    records = long_records(6000, seed=3)
    score = agglearn.score_tables(fitted, agglearn.aggregate(records, "y", schema=long.schema))
    assert abs(score.nllh - nllh(fitted, records)) < 4 * score.nllh_se
    own = agglearn.score_tables(fitted, long)
    assert own.own_tables
    assert not score.own_tables


def test_penalties_are_chosen_on_tables_that_saw_other_cells(long: AggregatedData) -> None:
    valid = agglearn.aggregate(long_records(3000, seed=4), "y", schema=long.schema)
    settings = FitSettings(lambda_theta="auto", chains=2000, iterations=60)
    model = agglearn.fit(long, settings, valid=valid)
    assert model.record.choice is not None
    assert nllh(model, long_records(3000, seed=5)) > 0


def test_everything_that_is_asked_of_a_model_can_be_asked_of_a_sparse_one(
    long: AggregatedData, fitted: agglearn.Model, tmp_path: Path
) -> None:
    assert agglearn.check(long).ok
    found = agglearn.diagnose(fitted, long)
    assert found.own_tables
    triples = agglearn.aggregate(long_records(seed=6), "y", schema=long.schema, tables="a*b*c")
    assert agglearn.diagnose(fitted, long, check=triples).check[0].table == "a × b × c"
    shares = sum(r.share for r in (*found.joint, *found.alone))
    assert shares == pytest.approx(1, abs=1e-6)
    assert all(len(s.features) > 1 for s in agglearn.suggest_tables(fitted, long, size=3, top=2))
    drawn = pa.concat_tables(sample(fitted, 3000, seed=1))
    assert drawn.num_rows == 3000
    assert set(drawn["a"].to_pylist()) <= set(long_records()["a"])


def test_a_combination_that_was_never_seen_has_a_wider_interval(
    long: AggregatedData, fitted: agglearn.Model
) -> None:
    law = model_posterior(fitted, seed=0)
    table = long.tables["a", "b"]
    often = int(np.argmax(table.counts))
    (a, b), codes = table.cells.codes(often), np.zeros((4, 2), np.uint16)  # type: ignore[misc]
    unseen = next(v for v in range(400) if table.cells.find(np.array([[a], [v]]))[0] == table.n_cells - 1)
    codes[:2, 0], codes[:2, 1] = (a, b), (a, unseen)
    lower, upper = law.log_odds(codes)
    assert upper[1] - lower[1] > upper[0] - lower[0]


def test_a_fit_goes_on_from_one_to_tables_that_saw_other_cells(long: AggregatedData) -> None:
    """As far as the dense one gets from there: 0.0006 is the spread of dense fits over seeds."""
    records, others = pa.table(long_records()), long_records(6000, seed=1)
    half = agglearn.aggregate(records.slice(0, 3000), "y", schema=long.schema)
    settings = FitSettings(chains=5000)
    scores = []
    for kind in (lambda data: data, dense):
        before = agglearn.fit(kind(half), settings)
        after = agglearn.fit(kind(long), settings, start_from=before)
        assert nllh(after, others) > nllh(before, others)
        scores.append(nllh(after, others))
    assert abs(scores[0] - scores[1]) < 0.002


def test_a_killed_fit_of_sparse_tables_ends_with_the_same_bits(long: AggregatedData, tmp_path: Path) -> None:
    settings = FitSettings(chains=1000, iterations=25)
    whole = agglearn.fit(long, settings)

    def kill(state: Any) -> None:
        if state.iteration == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        agglearn.fit(long, settings, checkpoints=Checkpoints(tmp_path / "kept", 0.0), on_iteration=kill)
    again = agglearn.fit(long, settings, checkpoints=Checkpoints(tmp_path / "kept", 0.0))
    np.testing.assert_array_equal(again.field.theta, whole.field.theta)


def test_the_tree_of_pairs_is_the_same_baseline_on_sparse_tables(long: AggregatedData) -> None:
    codes = long.schema.encode(pa.table(long_records()))  # whose values are all known
    sparse, plain = (tree_augmented_nb(make_problem(d), 1.0) for d in (long, dense(long)))
    np.testing.assert_allclose(sparse.log_odds(codes), plain.log_odds(codes), atol=1e-9)


# --- defaults ---------------------------------------------------------------------------------------------


def test_values_seen_once_or_twice_are_folded_in_a_long_column_and_told() -> None:
    often, rare = [f"v{i}" for i in range(90)] * 3, [f"r{i}" for i in range(40)] * 2
    short = [*(["x", "y"] * 200)[: len(often + rare) - 1], "once"]
    table = pa.table({"long": often + rare, "short": short, "y": ([0, 1] * 500)[: len(short)]})
    found = agglearn.aggregate_split(table, "y")
    assert found.train.schema.feature("long").n_modalities == 91
    assert found.train.schema.feature("short").n_modalities == 3
    why = {note.name: note.why for note in found.notes}["long"]
    assert "40 values seen fewer than 3 times folded into one (22.9% of the records)" in why
    kept = agglearn.aggregate(table, "y", min_modality_count=1)
    assert kept.schema.feature("long").n_modalities == 130


def test_a_column_of_70_000_values_can_be_learnt_from() -> None:
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(70_000), 3)
    y = (rng.random(user.size) < np.where(user < 35_000, 0.6, 0.2)).astype(int)
    table = pa.table({"user": [f"u{i:05d}" for i in user], "place": rng.integers(0, 4, user.size), "y": y})
    data = agglearn.aggregate(table, "y")
    assert data.schema.feature("user").n_modalities == 70_000
    model = agglearn.fit(data, FitSettings(chains=5000, iterations=30))
    assert model.chains is not None
    assert model.chains.dtype == np.uint32
    odds = model.field.log_odds(data.schema.encode(table))
    assert odds[user < 35_000].mean() > odds[user >= 35_000].mean()


# --- what is told of a model ------------------------------------------------------------------------------


def test_terms_add_up_to_the_log_odds_in_cells_that_were_never_seen(fitted: agglearn.Model) -> None:
    records = pa.table(long_records(500, seed=5)).drop_columns(["y"])
    codes = fitted.schema.encode(records.combine_chunks().to_batches()[0])
    unseen = [
        fitted.layout.cells[t].find(codes[list(scope)]) == fitted.layout.sizes[t] - 1
        for t, scope in enumerate(fitted.layout.scopes)
        if fitted.layout.cells[t].tied
    ]
    assert np.any(unseen)
    found = fitted.explain(records, "pandas")
    terms = found.drop(columns="(log-odds)").sum(axis=1)
    np.testing.assert_allclose(terms, found["(log-odds)"], atol=1e-6)


def test_shares_of_terms_add_up_and_spreads_are_those_of_contributions(fitted: agglearn.Model) -> None:
    importance = fitted.importance("pandas").set_index("term")
    assert importance["share"].sum() == pytest.approx(1, abs=1e-5)
    assert fitted.chains is not None
    alone, joint = fitted.explanation().parts.contributions(fitted.chains)
    added = np.hstack([alone, joint])
    for name, column in zip(fitted.explanation().term_names(), added.T, strict=True):
        # the chains are all the law there is: sums of float32 in between
        assert importance.loc[name, "spread"] == pytest.approx(np.sqrt(np.square(column).mean()), rel=1e-3)
    pair = fitted.interaction("a", "b", library="pandas")
    assert len(pair) == prod(fitted.schema.feature(f).n_modalities for f in ("a", "b"))


def test_a_report_shows_what_it_can_and_says_which_table_it_cannot_reckon_with(
    fitted: agglearn.Model, long: AggregatedData, tmp_path: Path
) -> None:
    valid = agglearn.aggregate(long_records(seed=7), "y", schema=long.schema)
    agglearn.write_report(fitted, tmp_path / "report.html", tables=long, valid=valid, compare=True)
    page = (tmp_path / "report.html").read_text()
    assert "b lists only the cells that were seen, too many to look up in a page" in page
    assert "tree-augmented Naive Bayes" in page


def test_private_tables_do_not_tell_which_cells_were_seen(long: AggregatedData) -> None:
    noisy = simulate(long, 5.0, seed=0)
    assert long.table("a", "b").cells.tied
    table = noisy.table("a", "b")
    assert table.cells == DenseCells(shape_of(("a", "b"), long.schema))
    seen = dense(long).table("a", "b").counts > 0
    assert (table.counts[~seen] != 0).mean() > 0.5  # noise of several records on every cell
