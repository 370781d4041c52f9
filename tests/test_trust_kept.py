"""Intervals by how a model was fitted, and kept with the model they are of."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from scipy.special import expit

import agglearn
from agglearn.model.format import load_model, save_model
from agglearn.train.settings import FitSettings
from agglearn.trust import kept
from agglearn.trust.intervals import model_posterior
from agglearn.trust.kept import fingerprint, kept_posterior
from tests.conftest import Cli
from tests.fields import KnownField, columns, pairs, random_field

CARDS = (4, 3, 5)
LAYOUT = pairs(CARDS)


# --- how a model was fitted -------------------------------------------------------------------------------


def test_tables_that_share_one_penalty_have_intervals_of_that_penalty() -> None:
    held = []
    for seed in range(8):
        rng = np.random.default_rng([5, seed])
        codes = np.array([rng.integers(0, card, 3000) for card in CARDS])
        effects = [rng.normal(0, 0.5, card) for card in CARDS]
        true = -1 + sum(own[code] for own, code in zip(effects, codes, strict=True))
        y = (rng.random(3000) < expit(true)).astype(int)
        tables = agglearn.aggregate(columns(codes.T, y), "y", tables="singles")
        model = agglearn.fit(tables, FitSettings(engine="exact"))
        assert np.ptp(model.record.penalties) == 0
        lower, upper = model_posterior(model, draws=32, seed=seed).log_odds(codes)
        held.append(np.mean((lower <= true) & (true <= upper)))
        # With flat priors an effect of a value of a fifth to a third of 3,000 records has a standard
        # deviation of 0.1 or so; three of them and an interval of 1.65 either side make 0.6.
        assert np.mean(upper - lower) < 0.8
    # Measured: 0.85 over these eight, with a standard error of 0.03.
    assert 0.75 < np.mean(held) < 0.99


def test_a_prior_mean_is_where_intervals_begin_from() -> None:
    held, ratios = [], []
    for seed in range(6):
        rng = np.random.default_rng([6, seed])
        before = random_field([6, seed], LAYOUT, (0.4, 1.0), -1.0)
        theta = before.theta + rng.normal(0, 0.3, LAYOUT.n_cells)
        field = KnownField(LAYOUT, before.mu, theta, -1.0)
        some = agglearn.fit(field.tables(500, seed), FitSettings(1.0, engine="exact", iterations=1))
        old = replace(some, field=replace(some.field, theta=before.theta))
        settings = FitSettings(0.5 / 0.3**2, engine="exact")
        model = agglearn.fit(field.tables(4000, seed), settings, prior=old)
        np.testing.assert_array_equal(model.prior, before.theta)
        codes = np.ascontiguousarray(field.draw(1000, 100 + seed)[0].T)
        true = replace(model.field, theta=theta, intercept=-1.0).log_odds(codes)
        found, without = (
            model_posterior(m, draws=32, seed=seed).log_odds(codes)
            for m in (model, replace(model, prior=None))
        )
        held.append(np.mean((found[0] <= true) & (true <= found[1])))
        ratios.append(np.mean(found[1] - found[0]) / np.mean(without[1] - without[0]))
    # Measured: 0.94 over these six, with a standard error of 0.02; and lengths of 0.28 of those without.
    assert 0.85 < np.mean(held) < 0.99
    assert np.mean(ratios) < 0.6  # weights that are N(m, 0.3²) are not taken for draws of N(0, 1)


# --- kept with the model ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    codes = np.array([rng.integers(0, card, 2000) for card in CARDS])
    y = (rng.random(2000) < expit(0.5 * (codes[0] == codes[1]) - 1)).astype(int)
    return columns(codes.T, y)


@pytest.fixture(scope="module")
def fitted(records: dict[str, Any]) -> agglearn.MaxEntClassifier:
    return agglearn.MaxEntClassifier(chains=2000).fit(agglearn.aggregate(records, "y"))


@pytest.fixture
def folder(fitted: agglearn.MaxEntClassifier, tmp_path: Path) -> Path:
    save_model(fitted.model_, tmp_path / "a.model")
    return tmp_path / "a.model"


class Counted:
    """Finds what tables leave open, and counts how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        monkeypatch.setattr(kept, "model_posterior", self._find)

    def _find(self, *args: Any, **options: Any) -> Any:
        self.times += 1
        return model_posterior(*args, **options)


def test_what_was_found_once_is_taken_from_the_models_folder(
    folder: Path, records: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, counted = load_model(folder), Counted(monkeypatch)
    codes = np.ascontiguousarray(model.schema.encode(pa.table(records)))
    found = [kept_posterior(load_model(folder), folder) for _ in range(2)]
    assert counted.times == 1
    direct = model_posterior(model)
    for one in found:
        np.testing.assert_array_equal(one.log_odds(codes), direct.log_odds(codes))
        np.testing.assert_array_equal(one.weights(), direct.weights())
    files = {path.name: path.read_bytes() for path in (folder / "intervals").iterdir()}
    shutil.rmtree(folder / "intervals")
    kept_posterior(model, folder)  # the same bytes for the same model and seed
    assert files == {path.name: path.read_bytes() for path in (folder / "intervals").iterdir()}


def test_what_is_of_another_model_or_seed_is_not_taken(
    folder: Path, fitted: agglearn.MaxEntClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, model = Counted(monkeypatch), fitted.model_
    kept_posterior(model, folder)
    theta = model.field.theta.copy()
    theta[0] += 1e-9
    history = (replace(model.record.history[-1], moved=1.0),)
    others = [
        replace(model, field=replace(model.field, theta=theta)),
        replace(model, rows=model.rows + 1),
        replace(model, record=replace(model.record, penalties=model.record.penalties * 2)),
        replace(model, record=replace(model.record, history=history)),
        replace(model, prior=theta),
    ]
    prints = {fingerprint(m, seed) for m in [model, *others] for seed in (0, 1)}
    assert len(prints) == 2 * (1 + len(others))
    for other in others[:2]:
        kept_posterior(other, folder)
    kept_posterior(model, folder, seed=1)
    assert counted.times == 4


@pytest.mark.parametrize("damage", ["cut", "edited", "empty"])
def test_what_is_damaged_is_found_anew(
    folder: Path, fitted: agglearn.MaxEntClassifier, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    counted = Counted(monkeypatch)
    kept_posterior(fitted.model_, folder)
    file = folder / "intervals" / {"empty": "manifest.json"}.get(damage, "intervals-draws.arrow")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes({"cut": data[:-100], "edited": data, "empty": b""}[damage]))
    if damage == "empty":  # no longer known to be ours: it is left alone
        said: list[str] = []
        kept_posterior(fitted.model_, folder, say=said.append)
        assert "is not ours to overwrite" in said[-1]
        return
    for _ in range(2):
        kept_posterior(fitted.model_, folder)
    assert counted.times == 2


def test_a_model_that_is_written_anew_forgets_what_was_kept(
    folder: Path, fitted: agglearn.MaxEntClassifier
) -> None:
    kept_posterior(fitted.model_, folder)
    save_model(fitted.model_, folder)
    assert not (folder / "intervals").exists()


def test_a_classifier_saves_and_loads_what_it_found(
    fitted: agglearn.MaxEntClassifier,
    records: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = fitted.predict_interval(records)
    fitted.save(tmp_path / "b.model")
    counted = Counted(monkeypatch)
    loaded = agglearn.MaxEntClassifier.load(tmp_path / "b.model")
    np.testing.assert_array_equal(loaded.predict_interval(records), ends)
    assert counted.times == 0
    loaded.fit(agglearn.aggregate(records, "y", tables="singles"))
    assert loaded.predict_interval(records).shape == (2000, 2)  # of the new fit, not of the folder's
    assert counted.times == 0


def test_the_command_line_says_what_takes_long_and_does_it_once(
    folder: Path, records: dict[str, Any], run_cli: Cli, tmp_path: Path
) -> None:
    pacsv.write_csv(pa.table(records), tmp_path / "records.csv")
    first, second, shown = (
        run_cli(*args, "--interval", 0.9)
        for args in (
            ("predict", folder, tmp_path / "records.csv", "-o", tmp_path / "1.parquet"),
            ("predict", folder, tmp_path / "records.csv", "-o", tmp_path / "2.parquet"),
            ("show", folder, "--feature", "f0"),
        )
    )
    assert (first.code, second.code, shown.code) == (0, 0, 0), shown.err
    assert "about as long as a fit" in first.err
    assert "about as long as a fit" not in second.err + shown.err
    assert pq.read_table(tmp_path / "1.parquet").equals(pq.read_table(tmp_path / "2.parquet"))


def test_a_folder_that_cannot_be_written_to_gives_intervals_all_the_same(
    folder: Path, records: dict[str, Any], run_cli: Cli, tmp_path: Path
) -> None:
    (folder / "intervals").write_text("in the way")
    pacsv.write_csv(pa.table(records), tmp_path / "records.csv")
    out = tmp_path / "out.parquet"
    done = run_cli("predict", folder, tmp_path / "records.csv", "--interval", 0.9, "-o", out)
    assert done.code == 0
    assert "it is not kept, and will be found anew" in done.err
    assert pq.read_table(out).num_rows == 2000
    assert (folder / "intervals").read_text() == "in the way"
