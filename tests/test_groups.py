"""Groups of features that determine one another: redrawn together, they leave the field's law as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agglearn.field.engines.local import LocalEngine
from agglearn.field.groups import Groups, find_groups
from agglearn.field.layout import Layout
from agglearn.runtime.random import Numbers, Use
from tests.fields import Codes, Floats, KnownField, cells_of, count, pairs, random_field, sparse_layout

LAYOUTS = {
    "pairs": pairs((3, 4, 2, 5)),
    "of all kinds": Layout.hashed(
        (3, 4, 2, 5), ((0,), (0, 1), (1, 2, 3), (0, 2), (0, 1, 3)), (0, 0, 0, 0, 11)
    ),
    "sparse": sparse_layout(pairs((3, 4, 2, 5)), 0.6, 3, (2, 4)),
}
MANY = 40_000  # chains


def copies(noise: float, seed: int = 0) -> Codes:
    """Four features: the second is the first but for some noise, the fourth the third."""
    rng = np.random.default_rng(seed)
    a, c = rng.integers(0, 4, (2, 20_000))
    b, d = (np.where(rng.random(x.size) < noise, rng.integers(0, 4, x.size), x) for x in (a, c))
    return np.stack([a, b, c, d], axis=1).astype(np.uint16)


def groups_of(codes: Codes, layout: Layout) -> Groups:
    return find_groups(layout, count(layout, codes)[0])


def members(groups: Groups) -> list[set[int]]:
    ends = zip(groups.first[:-1], groups.first[1:], strict=True)
    return [set(groups.member[a:b].tolist()) for a, b in ends]


def joined(layout: Layout, seed: int) -> Groups:
    """Groups from tables that have nothing to do with the field: all features nearly the same number."""
    rng = np.random.default_rng(seed)
    one, n = rng.random(5_000), len(layout.cards)
    own = np.where(rng.random((5_000, n)) < 0.1, rng.random((5_000, n)), one[:, None])
    codes = np.floor(own * np.array(layout.cards))
    return groups_of(codes.astype(np.uint16), layout)


def shares(field: KnownField) -> Floats:
    """The share of records in each cell, and of positives."""
    d, c = np.zeros(field.layout.n_cells), np.zeros(field.layout.n_cells)
    for cells in cells_of(field.layout, field.states):
        np.add.at(d, cells, field.law.sum(axis=1))
        np.add.at(c, cells, field.law[:, 1])
    return np.append(d, c)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_law_stays_what_it_is_whatever_is_proposed(layout: Layout) -> None:
    field = random_field(5, layout, 0.7)
    groups = joined(layout, 1)
    assert groups.size
    codes, labels = field.draw(MANY, 2)
    engine = LocalEngine(layout, codes.T, MANY, Numbers(3, Use.DRAW), threads=1, groups=groups)
    engine.set_state({"chains": np.ascontiguousarray(codes.T), "labels": labels})
    for iteration in range(20):
        engine.regroup(field, iteration)
    moved = engine.chains.T
    assert (moved != codes).any(axis=1).mean() > 0.3
    found = np.append(*count(layout, moved, labels)) / MANY
    expected = shares(field)
    # Five standard deviations of so many independent records.
    assert (np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / MANY) + 1e-12).all()


def test_features_that_determine_each_other_move_only_together() -> None:
    layout = pairs((4, 4, 4, 4))
    codes = copies(0.001)
    counts = count(layout, codes)[0]
    # The field of the tables: log P(a, b) for each pair of copies, nothing between them.
    mu = np.zeros(layout.n_cells)
    for t, scope in enumerate(layout.scopes):
        if scope in ((0, 1), (2, 3)):
            mu[layout.part(t)] = np.log(counts[layout.part(t)] + 0.1)
    field = KnownField(layout, mu, np.zeros_like(mu), 0.0)
    chains = np.ascontiguousarray(codes.T.astype(np.uint16))

    def same(groups: Groups | None) -> float:
        """How many chains have their first value after ten sweeps."""
        engine = LocalEngine(layout, chains, 1.0, Numbers(0), threads=1, groups=groups)
        for iteration in range(10):
            engine.sweep(field, iteration)
        return float((engine.chains[0] == chains[0]).mean())

    assert same(None) > 0.95
    # A quarter have it by chance; five standard deviations.
    assert same(find_groups(layout, counts)) == pytest.approx(0.25, abs=5 * np.sqrt(0.25 * 0.75 / len(codes)))


def test_groups_are_features_that_share_most_of_what_there_is_to_know() -> None:
    layout = pairs((4, 4, 4, 4))
    assert members(groups_of(copies(0.05), layout)) == [{0, 1}, {2, 3}]
    assert groups_of(copies(0.9), layout).size == 0
    alone = np.random.default_rng(0).integers(0, 4, (5_000, 4))
    assert groups_of(alone.astype(np.uint16), layout).size == 0


def test_a_group_has_at_most_eight_features() -> None:
    one = np.random.default_rng(0).integers(0, 3, 3_000).astype(np.uint16)
    codes = np.repeat(one[:, None], 20, axis=1)
    found = members(groups_of(codes, pairs((3,) * 20)))
    assert max(map(len, found)) == 8
    assert sum(map(len, found)) == len(set().union(*found))


def test_parents_stand_before_their_children_and_laws_are_those_of_the_table() -> None:
    layout = pairs((4, 4, 4, 4))
    codes = copies(0.05)
    groups = groups_of(codes, layout)
    for k, parent in enumerate(groups.parent.tolist()):
        if parent < 0:
            continue
        f = int(groups.member[k])
        table = np.zeros((4, 4))
        np.add.at(table, (codes[:, parent], codes[:, f]), 1)
        law = np.exp(groups.log_law[groups.law[k] : groups.law[k] + 16].reshape(4, 4))
        # One record is spread over all cells: a row of some 5,000 moves by less than 1/5,000.
        np.testing.assert_allclose(law, table / table.sum(axis=1, keepdims=True), atol=3e-4)
        np.testing.assert_allclose(law.sum(axis=1), 1, rtol=1e-12)


def test_what_is_drawn_depends_neither_on_threads_nor_on_which_chains_stand_together() -> None:
    layout = LAYOUTS["of all kinds"]
    field, groups = random_field(5, layout, 0.7), joined(layout, 1)
    codes, labels = field.draw(7_001, 2)
    ids = np.arange(len(codes), dtype=np.uint64)

    def after(chosen: slice, threads: int) -> Any:
        engine = LocalEngine(layout, codes.T, 1.0, Numbers(3), threads=threads, groups=groups)
        state: dict[str, Any] = {
            "chains": np.ascontiguousarray(codes[chosen].T),
            "labels": labels[chosen],
            "ids": ids[chosen],
        }
        engine.set_state(state)
        for iteration in range(3):
            engine.sweep(field, iteration)
        return engine.chains

    whole = after(slice(None), 1)
    np.testing.assert_array_equal(after(slice(None), 3), whole)
    parts = [after(slice(0, 2_500), 1), after(slice(2_500, None), 2)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_sparse_and_hashed_tables_propose_nothing() -> None:
    codes = copies(0.05)
    layout = sparse_layout(pairs((4, 4, 4, 4)), 0.9)
    assert groups_of(codes, layout).size == 0
    hashed = Layout.hashed((4, 4, 4, 4), ((0, 1), (2, 3)), (7, 7))
    assert groups_of(codes, hashed).size == 0
