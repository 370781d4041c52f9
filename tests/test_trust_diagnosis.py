"""The diagnosis: misfit in standard errors, mixing, what predictions rest on, and checks by larger tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy.stats import binom, chi2

from agglearn import AggregatedData, Diagnosis, Model, aggregate, diagnose, fit, save
from agglearn.datasets import xor
from agglearn.errors import InputError, TableError, TooLargeError
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.layout import Layout
from agglearn.field.margins import unexplained
from agglearn.field.problem import Problem, TableNoise, make_problem
from agglearn.model.format import save_model
from agglearn.runtime.speech import speaking_to_shell
from agglearn.tables.table import Table
from agglearn.train.settings import FitSettings, TrainingSettings
from agglearn.trust.misfit import TableMisfit, misfits
from agglearn.trust.mixing import HalfTallies, agreement, autocorrelation, integrated_time, watch
from tests.conftest import Cli
from tests.fields import KnownField, columns, random_field, with_noise

CARDS = (3, 4, 2, 5)
ALONE = TrainingSettings(groups=False)  # features are redrawn one at a time
Floats = npt.NDArray[np.float64]


def records_of_pairs(rows: int, seed: int, strength: float = 0.5, cards: tuple[int, ...] = CARDS) -> pa.Table:
    """Records of a field with pairs only, so that pair tables tell all there is to know."""
    return pa.table(columns(*random_field(11, cards, strength).draw(rows, seed)))


def tables_of(records: Any, like: AggregatedData | None = None, tables: str = "pairs") -> AggregatedData:
    schema = None if like is None else like.schema
    return aggregate(records, "y", categorical=[] if like else ["*"], schema=schema, tables=tables)


@pytest.fixture(scope="module")
def pairwise() -> tuple[Model, AggregatedData]:
    tables = tables_of(records_of_pairs(30_000, seed=0))
    return fit(tables, FitSettings(lambda_theta=1.0)), tables


def root_mean_square(found: tuple[TableMisfit, ...], what: str) -> float:
    return float(np.sqrt(np.mean([getattr(m, what) ** 2 for m in found])))


# --- misfit -----------------------------------------------------------------------------------------------


def drawn_from(model: Model, rows: int, seed: int) -> Any:
    """Records of a model's field by enumeration."""
    field = KnownField(model.layout, model.field.mu, model.field.theta, model.field.intercept)
    return pa.table(columns(*field.draw(rows, seed)))


@pytest.mark.parametrize(
    ("on_counts", "on_sums"), [(0.0, 0.0), (4.0, 4.0), (4.0, 0.0), (0.0, 4.0), (3.0, 7.0)]
)
def test_z_is_the_difference_over_its_standard_error(on_counts: float, on_sums: float) -> None:
    """Chains without noise (both halves the same), so that the standard errors can be written down."""
    schema = tables_of(records_of_pairs(1000, seed=0)).schema
    layout = Layout.plain(CARDS, [(0, 2)])
    d = np.array([120.0, 380.0, 95.0, 205.0, 160.0, 40.0])
    c = np.array([30.0, 150.0, 40.0, 100.0, 5.0, 20.0])
    q = np.array([0.2, 0.4, 0.5, 0.45, 0.1, 0.3])
    share = np.array([0.1, 0.4, 0.1, 0.2, 0.15, 0.05])
    chains = np.tile(share * 500_000, (2, 1))
    seen = HalfTallies(layout, chains, chains * q, 1_000_000)
    noise = TableNoise(np.array([on_counts]), np.array([on_sums]))
    given = Problem(layout, d, c, 1000.0, float(c.sum()), noise=noise)
    (found,) = misfits(given, seen, schema)
    e = 1000 * share
    z_d = (d - e) / np.sqrt(e * (1 - share) + on_counts**2)
    z_c = (c - d * q) / np.sqrt(d * q * (1 - q) + on_sums**2 + on_counts**2 * q**2)
    assert found.z_records == pytest.approx(np.sqrt(np.mean(z_d**2)))
    assert found.z_positives == pytest.approx(np.sqrt(np.mean(z_c**2)))
    cells = {(w.what, w.cell): w for w in found.worst}
    k = int(np.argmax(np.abs(z_c)))
    worst = cells["positives", f"f0=v{k // 2}, f2=v{k % 2}"]
    assert (worst.given, worst.expected, worst.z) == pytest.approx((c[k], (d * q)[k], z_c[k]))
    tails = [chi2.sf(float(z @ z), 6) for z in (z_d, z_c)]
    assert found.p_value == pytest.approx(min(2 * min(tails), 1.0), rel=1e-6)
    # Log-likelihood of the cells' own rates above that of q: each cell's deviance by scipy's binomial law.
    if not (on_counts or on_sums):
        deviance = binom.logpmf(c, d, c / d) - binom.logpmf(c, d, q)
        entropy = -(0.345 * np.log(0.345) + 0.655 * np.log(0.655))
        assert c.sum() == 345
        # Less one half a cell that chance gives, a little more in small ones.
        assert found.gain == pytest.approx((deviance.sum() - 3) / (1000 * entropy), rel=0.005)


def test_the_chains_own_noise_is_in_the_standard_errors() -> None:
    """Halves that differ as a hundredth of their chains would leave a standard error of that many draws."""
    rng = np.random.default_rng(5)
    layout = Layout.plain((40, 50), [(0, 1)])
    records = pa.table({"a": np.arange(2000) // 50, "b": np.arange(2000) % 50, "y": np.arange(2000) % 2})
    schema = aggregate(records, "y", categorical=["*"]).schema
    law = rng.dirichlet(np.full(2000, 5.0))
    halves = 100 * rng.multinomial(50_000, law, size=2).astype(float)
    seen = HalfTallies(layout, halves, 0.5 * halves, 10_000_000)
    d = rng.multinomial(1_000_000, law).astype(float)
    (found,) = misfits(Problem(layout, d, d / 2, 1e6, 5e5), seen, schema)
    # Without it, 100,000 draws for a million records would be √11 off. 2,000 cells tell 1 within 1.6 %, and
    # the halves tell their own noise within √(2/2000).
    assert found.z_records == pytest.approx(1.0, abs=0.08)


@pytest.mark.parametrize("engine", ["local", "exact"])
def test_tables_of_the_field_itself_are_one_standard_error_off(engine: str) -> None:
    tables = tables_of(records_of_pairs(20_000, seed=0))
    model = fit(tables, FitSettings(lambda_theta=1.0, engine=engine))
    squares = []
    for seed in (1, 2, 3):
        found = diagnose(model, tables_of(drawn_from(model, 20_000, seed), tables))
        squares.append(
            [root_mean_square(found.misfit, f"z_{what}") ** 2 for what in ("records", "positives")]
        )
        assert not found.own_tables
        assert found.warnings == ()
    # A table's total is no surprise, which takes a cell's worth of the squares away: 65 of 71. The tables
    # share margins: some 45 numbers are independent, so three samples tell a mean square within √(2/135).
    assert np.mean(squares, axis=0) == pytest.approx([0.95, 0.95], abs=0.4)


def test_the_tables_of_the_fit_are_fitted_but_for_what_the_penalty_holds_back(
    pairwise: tuple[Model, AggregatedData],
) -> None:
    model, tables = pairwise
    found = diagnose(model, tables)
    assert found.own_tables
    assert root_mean_square(found.misfit, "z_records") < 0.7
    assert found.warnings == ()
    held_back = fit(tables, FitSettings(lambda_theta=1000.0))
    found = diagnose(held_back, tables)
    # A converged fit leaves c − d·q̂ = 2λθ behind; the chains' noise is what it does not.
    assert root_mean_square(found.misfit, "z_positives") > 5
    for table in found.misfit:
        assert table.z_positives == pytest.approx(table.z_penalty, rel=0.1, abs=0.3)
    assert found.warnings == ()


def test_a_table_that_is_wrong_is_named_with_its_worst_cells(pairwise: tuple[Model, AggregatedData]) -> None:
    model, tables = pairwise
    right = tables.tables["f1", "f3"]
    counts, sums = right.counts.copy(), right.sums.copy()
    moved = counts[2, 1] // 2
    counts[2, 1] -= moved
    counts[0, 1] += moved
    sums = np.minimum(sums, counts)
    wrong = replace(tables, tables={**tables.tables, ("f1", "f3"): Table(("f1", "f3"), counts, sums)})
    found = diagnose(model, wrong)
    assert found.misfit[0].table == "f1 × f3"
    assert found.misfit[0].z_records > 5 * max(m.z_records for m in found.misfit[1:])
    cells = [c for c in found.misfit[0].worst if c.what == "records"]
    assert {c.cell for c in cells[:2]} == {"f1=v2, f3=v1", "f1=v0, f3=v1"}
    at = {c.cell: c for c in cells}["f1=v2, f3=v1"]
    assert at.given == counts[2, 1]
    assert at.expected == pytest.approx(right.counts[2, 1], rel=0.1)
    assert at.z == pytest.approx((at.given - at.expected) / np.sqrt(at.expected), rel=0.3)
    assert any("f1 × f3 is off by" in warning.text for warning in found.warnings)


def test_a_fit_that_was_stopped_early_is_told_to_go_on() -> None:
    tables = tables_of(records_of_pairs(30_000, seed=0, strength=1.0))
    model = fit(tables, FitSettings(lambda_theta=1.0, iterations=3))
    (to_python,) = (w for w in diagnose(model, tables).warnings if w.cause == "not fitted")
    assert "tables are not fitted" in to_python.text
    assert "(iterations, tolerance), or see whether the tables agree (agglearn.check)" in to_python.text
    with speaking_to_shell():
        (to_shell,) = (w for w in diagnose(model, tables).warnings if w.cause == "not fitted")
    assert "(--iterations, --tolerance), or see whether the tables agree (agglearn check)" in to_shell.text


@pytest.mark.parametrize("sigma", [0.0, 25.0])
def test_no_warning_comes_of_other_records_of_a_pairwise_law(sigma: float) -> None:
    """Few cells in a table, and a fit and a table that both have a sample's error: 2.6 standard errors were
    seen on such, none of them a surprise."""
    z = []
    for seed in range(5):
        train, other = (records_of_pairs(5000, seed=2 * seed + k, cards=(2, 2, 3)) for k in (0, 1))
        tables = tables_of(train)
        model = fit(
            tables, FitSettings(chains=5000, lambda_theta=1.0, training=TrainingSettings(step_mu=2.0))
        )
        pairs, triple = (tables_of(other, tables, which) for which in ("pairs", "triples"))
        found = diagnose(model, noisy(pairs, sigma, seed), check=noisy(triple, sigma, seed))
        assert found.warnings == ()
        z += [(m.new_records, m.new_positives) for m in found.check]
    # Of what is new 2 degrees a table on either side, 10 in all: √(2/10) = 0.45 of a mean square, thrice.
    assert np.mean(np.square(z), axis=0) == pytest.approx([1.0, 1.0], abs=1.35)


def noisy(tables: AggregatedData, sigma: float, seed: int) -> AggregatedData:
    return with_noise(tables, "gaussian", sigma, sigma, seed) if sigma else tables


def test_chains_that_cannot_move_are_noise_and_not_misfit() -> None:
    """Of two features that are the same neither moves: chains are worth the few that training began with."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 12, 20_000), rng.integers(0, 6, 20_000)
    y = rng.random(20_000) < 0.2 + 0.05 * b
    tables = tables_of(pa.table({"a": a, "again": a, "b": b, "y": y.astype(int)}))
    model = fit(tables, FitSettings(chains=2000, lambda_theta=4.0, training=ALONE))
    found = diagnose(model, tables)
    slow = {m.name: m for m in found.mixing.features}
    assert slow["a"].draws == slow["again"].draws == 500  # a quarter of the chains, as the fit began
    assert slow["b"].draws > 20_000
    # Counted by 500 draws, a table of 20,000 records is off by √40 of its own standard errors.
    assert max(m.z_records for m in found.misfit) < 2
    assert any("of features that nearly determine one another" in warning.text for warning in found.warnings)


def test_features_that_are_the_same_move_together() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 12, 20_000), rng.integers(0, 6, 20_000)
    y = rng.random(20_000) < 0.2 + 0.05 * b
    tables = tables_of(pa.table({"a": a, "again": a, "b": b, "y": y.astype(int)}))
    found = diagnose(fit(tables, FitSettings(chains=2000, lambda_theta=4.0)), tables)
    # 48 sweeps of 2,000 chains; alone each chain was one draw at most.
    assert all(memory.draws > 20_000 for memory in found.mixing.features)
    assert not any("determine one another" in warning.text for warning in found.warnings)


def test_chains_are_counted_whole(pairwise: tuple[Model, AggregatedData]) -> None:
    """A cell is judged from two chains on: counts that are a last bit short of whole would change that."""
    model, tables = pairwise
    whole = Layout.plain(CARDS, [(0, 1, 2, 3)])
    (seen,) = watch(model, make_problem(tables), [whole], seed=0, threads=1, sweeps=4).tallies
    assert seen.records == seen.chains.sum() == 10_000
    assert np.array_equal(seen.chains, np.rint(seen.chains))


# --- mixing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_the_time_to_forget_is_that_of_an_autoregression(memory: float) -> None:
    rng = np.random.default_rng(1)
    traces = np.empty((48, 10_000))
    now = rng.normal(size=10_000)
    for row in traces:
        now = memory * now + np.sqrt(1 - memory**2) * rng.normal(size=10_000)
        row[:] = now
    # τ = (1 + a)/(1 − a); over 20 seeds the estimate varied by 1 % (a = 0), 2 % and 4 %.
    expected = (1 + memory) / (1 - memory)
    assert integrated_time(autocorrelation(traces), 10_000) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("stay", [0.0, 0.6, 0.9])
def test_a_value_that_is_kept_now_and_then_forgets_as_it_should(stay: float) -> None:
    rng = np.random.default_rng(2)
    law = np.array([0.5, 0.3, 0.15, 0.05])
    codes = np.empty((48, 10_000), np.uint16)
    now = rng.choice(4, 10_000, p=law)
    for row in codes:
        now = np.where(rng.random(10_000) < stay, now, rng.choice(4, 10_000, p=law))
        row[:] = now
    found = agreement(codes)
    assert found[:5] == pytest.approx(stay ** np.arange(5), abs=0.01)
    assert integrated_time(found, 10_000) == pytest.approx((1 + stay) / (1 - stay), rel=0.15)


def exact_time(model: Model) -> float:
    """τ of the log-odds under one sweep after another, by the matrix of a sweep over all states."""
    cards = model.layout.cards
    law = ExactEngine(model.layout, 1.0).probabilities(model.field)
    joint = law.reshape(*cards, 2)
    sweep = np.eye(joint.size)
    for axis in range(joint.ndim):  # each feature given the rest, then the label
        given = joint / joint.sum(axis=axis, keepdims=True)
        rows = np.zeros((joint.size, joint.size))
        for at in np.ndindex(*joint.shape):
            for value in range(joint.shape[axis]):
                to = (*at[:axis], value, *at[axis + 1 :])
                rows[np.ravel_multi_index(at, joint.shape), np.ravel_multi_index(to, joint.shape)] = given[to]
        sweep = sweep @ rows
    score = np.repeat(np.log(law[:, 1] / law[:, 0]), 2)
    weights = joint.reshape(-1)
    centred = score - weights @ score
    moved, total = centred, 0.0
    for _ in range(2000):
        moved = sweep @ moved
        total += float(weights @ (centred * moved))
    return 1 + 2 * total / float(weights @ centred**2)


@pytest.mark.parametrize("copied", [0.3, 0.9])
def test_the_chains_forget_as_the_matrix_of_a_sweep_says(copied: float) -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(0, 3, 20_000)
    b = np.where(rng.random(20_000) < copied, a, rng.integers(0, 3, 20_000))
    y = rng.random(20_000) < 0.1 + 0.3 * a
    tables = tables_of(pa.table({"a": a, "b": b, "y": y.astype(int)}))
    model = fit(tables, FitSettings(lambda_theta=1.0, training=ALONE))
    found = diagnose(model, tables).mixing
    expected = exact_time(model)
    assert found.score.time == pytest.approx(expected, rel=0.1)
    assert found.score.draws == pytest.approx(found.chains * found.sweeps / expected, rel=0.1)
    assert abs(found.halves_z) < 4  # standard errors


def test_halves_differ_by_as_many_standard_errors_as_chance_gives(
    pairwise: tuple[Model, AggregatedData],
) -> None:
    z = [diagnose(*pairwise, seed=seed).mixing.halves_z for seed in range(8)]
    assert 0.4 < np.sqrt(np.mean(np.square(z))) < 1.7  # 8 draws tell 1 within √(1/16) = 0.25
    assert len(set(z)) == 8


# --- what predictions rest on -----------------------------------------------------------------------------


def test_the_shares_add_up_and_go_to_what_makes_the_log_odds_vary() -> None:
    """π(x, y) ∝ exp(y·s(x)) with an effect of c and one of a and b together: a field with pairs."""
    states = np.array(list(product(range(2), repeat=4)))
    of_c = np.where(states[:, 2] == 1, 0.8, -0.8)
    of_ab = np.where(states[:, 0] == states[:, 1], 1.6, -1.6)
    score = of_c + of_ab
    joint = np.exp(np.stack([np.zeros(16), score], axis=1))
    joint /= joint.sum()
    drawn = np.random.default_rng(4).choice(32, 40_000, p=joint.reshape(-1))
    names = ("a", "b", "c", "idle")
    columns: dict[str, Any] = dict(zip(names, states[drawn // 2].T, strict=True))
    tables = tables_of(pa.table({**columns, "y": drawn % 2}))
    model = fit(tables, FitSettings(lambda_theta=1.0))
    found = diagnose(model, tables)
    shares, alone = ({r.name: r.share for r in group} for group in (found.joint, found.alone))
    assert sum(shares.values()) + sum(alone.values()) == pytest.approx(1.0, abs=1e-6)
    law = joint.sum(axis=1)
    cov = np.cov(np.stack([of_ab, of_c, score]), aweights=law)
    # 40,000 records tell log-odds of this size within a few hundredths.
    assert shares["a × b"] == pytest.approx(cov[0, 2] / cov[2, 2], abs=0.03)
    assert alone["c"] == pytest.approx(cov[1, 2] / cov[2, 2], abs=0.03)
    assert (found.joint[0].name, found.alone[0].name) == ("a × b", "c")


def test_the_shares_are_those_of_the_whole_law() -> None:
    """Against least squares and covariances over all 120 states of the fitted field, b leaning on a."""
    rng = np.random.default_rng(8)
    a = rng.integers(0, 5, 30_000)
    b = np.where(rng.random(30_000) < 0.8, a, rng.integers(0, 5, 30_000))
    other = rng.integers(0, 3, 30_000)
    y = rng.random(30_000) < 1 / (1 + np.exp(1 - 0.5 * a + 0.8 * (b == 2) * other))
    tables = tables_of(pa.table({"a": a, "b": b, "c": other, "y": y.astype(int)}))
    model = fit(tables, FitSettings(lambda_theta=2.0, engine="exact"))
    found = diagnose(model, tables)
    states = np.array(list(product(*(range(m) for m in model.layout.cards))))
    law = ExactEngine(model.layout, 1.0).probabilities(model.field).sum(axis=1)
    score = model.field.log_odds(np.ascontiguousarray(states.T.astype(np.uint16)))
    variance = np.cov(score, aweights=law, ddof=0)
    alone, joint = dict.fromkeys("abc", 0.0), {}
    for t, (f, g) in enumerate(model.layout.scopes):
        theta = model.layout.table(model.field.theta, t)[states[:, f], states[:, g]]
        one_hot = [np.eye(model.layout.cards[i])[states[:, i]] for i in (f, g)]
        design = np.concatenate(one_hot, axis=1) * np.sqrt(law)[:, None]
        weights = np.linalg.lstsq(design, theta * np.sqrt(law), rcond=None)[0]
        effects = np.split(weights, [model.layout.cards[f]])
        rest = theta.copy()
        for i, effect in zip((f, g), effects, strict=True):
            part = effect[states[:, i]]
            alone["abc"[i]] += np.cov(part, score, aweights=law, ddof=0)[0, 1] / variance
            rest = rest - part
        joint[" × ".join("abc"[i] for i in (f, g))] = (
            np.cov(rest, score, aweights=law, ddof=0)[0, 1] / variance
        )
    # 20,000 draws tell a covariance of this kind within 0.01.
    assert {r.name: r.share for r in found.alone} == pytest.approx(alone, abs=0.03)
    assert {r.name: r.share for r in found.joint} == pytest.approx(joint, abs=0.02)


def test_predictions_that_do_not_vary_rest_on_nothing(pairwise: tuple[Model, AggregatedData]) -> None:
    model, tables = pairwise
    flat = replace(model.field, theta=np.zeros_like(model.field.theta))
    found = diagnose(replace(model, field=flat), tables)
    assert {r.share for r in (*found.alone, *found.joint)} == {0.0}


# --- checks by larger tables ------------------------------------------------------------------------------


def test_on_xor_the_triple_warns() -> None:
    records = xor(20_000, seed=0)
    pairs = aggregate(records, "y", categorical=["*"], tables="pairs")
    model = fit(pairs)
    assert diagnose(model, pairs).warnings == ()  # pairs cannot show it
    triple = aggregate(records, "y", schema=pairs.schema, tables="triples")
    found = diagnose(model, pairs, check=triple)
    (warning,) = found.warnings
    assert warning.text.startswith("x1 × x2 × x3 is not what the field expects")
    (misfit,) = found.check
    assert misfit.z_records > 20
    assert misfit.z_positives > 20
    # One degree of eight cells is not told by pairs, and has all the squares. The positives of the four
    # cells that hold records could be told by pairs: it is the law of the features that is new.
    assert misfit.new_records == pytest.approx(misfit.z_records * np.sqrt(8), rel=0.1)
    assert misfit.new_positives == 0
    # Four of the eight cells hold no record, and the field, whose pairs are right, expects some there.
    assert {c.given for c in misfit.worst if c.what == "records"} == {0.0}
    # The truth has a log loss of entropy(¼) = 0.5623 nats where the label has log 2: all the field lacks.
    score = _nllh_on(model, records)
    assert misfit.gain == pytest.approx(1 - 0.5623 / np.log(2) - score, abs=0.015)


def _nllh_on(model: Model, records: Any) -> float:
    codes = model.schema.encode(records)
    y = model.schema.encode_labels(records)[0]
    log_odds = model.field.log_odds(codes)
    loss = np.logaddexp(0, log_odds) - y * log_odds
    rate = y.mean()
    return float(1 - loss.mean() / -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate)))


def test_on_records_of_a_pairwise_field_no_triple_warns(pairwise: tuple[Model, AggregatedData]) -> None:
    model, tables = pairwise
    for seed in (5, 6):
        triples = tables_of(records_of_pairs(30_000, seed=seed), tables, tables="triples")
        found = diagnose(model, tables, check=triples)
        assert len(found.check) == 4
        assert found.warnings == ()
        # Sampling, and about as much again on the pairs for the fit's own sample; 154 cells in all.
        assert 0.8 < root_mean_square(found.check, "z_records") < 1.6
        assert 0.7 < root_mean_square(found.check, "z_positives") < 1.6
        assert max(m.hellinger for m in found.check) < 0.03


def test_a_penalty_is_not_taken_for_three_way_structure(pairwise: tuple[Model, AggregatedData]) -> None:
    _, tables = pairwise
    held_back = fit(tables, FitSettings(lambda_theta=200.0))
    triples = tables_of(records_of_pairs(30_000, seed=7), tables, tables="triples")
    found = diagnose(held_back, tables, check=triples)
    assert root_mean_square(found.check, "z_positives") > 2
    assert root_mean_square(found.check, "new_positives") < 1.5
    assert found.warnings == ()


def test_what_is_new_is_what_least_squares_on_the_pairs_leaves() -> None:
    rng = np.random.default_rng(9)
    variance = rng.gamma(1.0, 30.0, (3, 4, 2))
    variance[1, 2] = 0.0  # cells that are not judged
    z = np.where(variance > 0, rng.normal(size=(3, 4, 2)), 0.0)
    pairs = [(0,), (1,), (2,)]
    codes = np.array(list(np.ndindex(*z.shape)))
    columns = []
    for (gone,) in pairs:
        kept = [i for i in range(3) if i != gone]
        ids = np.unique(codes[:, kept], axis=0, return_inverse=True)[1].reshape(-1)
        columns.append(np.eye(ids.max() + 1)[ids])
    # r = z·√v is fitted by v·(a + b + c) with weights 1/v: z by √v·(a + b + c) with weights 1.
    design = np.concatenate(columns, axis=1) * np.sqrt(variance.reshape(-1, 1))
    fitted = design @ np.linalg.lstsq(design, z.reshape(-1), rcond=None)[0]
    squares, degrees = unexplained(z, variance, pairs, seed=0)
    assert squares == pytest.approx(float(np.square(z.reshape(-1) - fitted).sum()), rel=0.01)
    judged = int((variance > 0).sum())
    # 500 probes tell so many degrees within √(2/(500·4)) = 3 %.
    assert degrees == pytest.approx(judged - np.linalg.matrix_rank(design), rel=0.12)
    alone, all_of_it = unexplained(z, variance, [], seed=0)
    assert (alone, all_of_it) == pytest.approx((float((z**2).sum()), judged), rel=0.05)


def test_tables_to_check_by_need_the_schema_of_the_model(pairwise: tuple[Model, AggregatedData]) -> None:
    model, tables = pairwise
    other = aggregate(xor(1000, seed=0), "y", categorical=["*"], tables="triples")
    with pytest.raises(TableError, match="another schema than the model"):
        diagnose(model, tables, check=other)
    with pytest.raises(InputError, match="seed -1"):
        diagnose(model, tables, seed=-1)


def test_hashed_tables_and_several_labels_are_judged_alike() -> None:
    records = records_of_pairs(20_000, seed=1)
    records = records.append_column("other", pa.array(1 - records["y"].to_numpy()))
    options: dict[str, Any] = {"categorical": ["*"], "hash_size": 11}
    tables = aggregate(records, ["other", "y"], **options)
    model = fit(tables, FitSettings(lambda_theta=1.0), label="y")
    triples = aggregate(records, ["other", "y"], schema=tables.schema, tables="triples", hash_size=31)
    found = diagnose(model, tables, check=triples)
    assert found.own_tables
    assert max(max(m.z_records, m.z_positives) for m in found.misfit) < 1.5
    assert sum(a.share for a in (*found.alone, *found.joint)) == pytest.approx(1.0)
    hashed = [m for m in found.check if "bucket" in m.worst[0].cell]
    assert {m.table for m in hashed} == {"f0 × f1 × f3", "f1 × f2 × f3"}  # the others have no 31 cells
    assert all(m.cells <= 31 for m in hashed)
    one = aggregate(records.drop_columns("other"), "y", schema=None, **options)
    alone = diagnose(fit(one, FitSettings(lambda_theta=1.0)), one)
    assert alone.misfit == found.misfit


def test_a_diagnosis_that_does_not_fit_is_refused(
    pairwise: tuple[Model, AggregatedData], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGGLEARN_MEMORY", "100KB")
    with pytest.raises(TooLargeError, match="a diagnosis of 71 cells with 10,000 chains"):
        diagnose(*pairwise)


def test_threads_change_nothing_and_the_model_is_left_alone(pairwise: tuple[Model, AggregatedData]) -> None:
    model, tables = pairwise
    assert model.chains is not None
    before = model.chains.copy()
    one, three = (diagnose(model, tables, threads=n).to_json() for n in (1, 3))
    assert one == three
    assert np.array_equal(model.chains, before)


# --- the command line -------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    records = xor(5000, seed=1)
    pairs = aggregate(records, "y", categorical=["*"], tables="pairs")
    save(pairs, "t.agg")
    save(aggregate(records, "y", schema=pairs.schema, tables="triples"), "triple.agg")
    save(tables_of(records_of_pairs(1000, seed=0)), "other.agg")
    save_model(fit(pairs, FitSettings(chains=1000, iterations=200)), "m.model")
    return tmp_path


def test_diagnose_prints_for_a_person(run_cli: Cli, made: Path) -> None:
    done = run_cli("diagnose", "m.model", "t.agg", "--check", "triple.agg")
    assert done.code == 0, done.err
    for words in (
        "Does the model reproduce the tables?",
        "Do its chains move?",
        "What do predictions rest on?",
        "Does it agree with the tables given to check by?",
        "warning: x1 × x2 × x3 is not what the field expects",
        "Which further tables are worth asking",
    ):
        assert words in done.out
    columns = done.out.split("worth asking")[1].splitlines()
    assert columns[1].split() == ["NLLH", "log-odds", "cells", "table"]
    assert columns[2].endswith("8  x1 × x2 × x3")
    done = run_cli("diagnose", "m.model", "t.agg", "--suggest", 0)
    assert "worth asking" not in done.out
    assert "no warning" in done.out
    done = run_cli("diagnose", "m.model", "t.agg", "--cells", 7)
    assert "None that the model does not have fits into 7 cells" in done.out


def test_diagnose_prints_one_json_object(run_cli: Cli, made: Path) -> None:
    done = run_cli("diagnose", "m.model", "t.agg", "--check", "triple.agg", "--json")
    found: Mapping[str, Any] = done.json
    assert done.err == ""
    assert {"misfit", "mixing", "joint", "alone", "check", "warnings", "suggestions"} <= found.keys()
    assert len(found["misfit"]) == 3
    assert found["check"][0]["z_records"] > 5
    assert [s["features"] for s in found["suggestions"]] == [["x1", "x2", "x3"]]
    assert found["mixing"]["score"]["draws"] > 1000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing.model", "t.agg"), "nothing.model"),
        (("m.model", "nothing.agg"), "nothing.agg"),
        (("m.model", "triple.agg"), "the tables lack x1 × x2"),
        (("m.model", "other.agg"), "the tables have another schema"),
        (("m.model", "t.agg", "--check", "other.agg"), "the tables to check by have another schema"),
        (("m.model", "t.agg", "--suggest", "-1"), "--suggest -1"),
        (("m.model", "t.agg", "--cells", "0"), "--cells 0 is out of bounds"),
        (("m.model", "t.agg", "--size", "1"), "size 1"),
        (("m.model", "t.agg", "--check", "m.model"), "m.model"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    run_cli: Cli, made: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = run_cli("diagnose", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert len(done.err.splitlines()) == 1


def test_the_words_fit_a_terminal(pairwise: tuple[Model, AggregatedData]) -> None:
    model, tables = pairwise
    found: Diagnosis = diagnose(model, tables, check=tables_of(records_of_pairs(9000, 1), tables, "triples"))
    assert max(map(len, str(found).splitlines())) <= 110
