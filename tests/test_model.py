"""A fitted field draws records as it should, and comes back from its folder bit for bit, or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import chi2

from agglearn import AggregatedData, FitSettings, MaxEntClassifier, TrainingSettings, aggregate, fit, save
from agglearn.errors import AgglearnError, InputError, StoreError
from agglearn.field.engines.exact import ExactEngine
from agglearn.model.draw import sample
from agglearn.model.format import load_model, save_model
from agglearn.runtime.files import read_json, write_arrays, write_manifest, write_sealed
from tests.records import COLOURS, SIZES, make_records

QUICK: dict[str, Any] = {"iterations": 30, "chains": 1000, "lambda_theta": 1.0}


@pytest.fixture(scope="module")
def records() -> Any:
    return make_records()


@pytest.fixture(scope="module")
def tables(records: Any) -> AggregatedData:
    return aggregate(records, "bought", positive="yes", exclude=["id"])


@pytest.fixture(scope="module", params=["local", "exact"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def fitted(tables: AggregatedData, engine: str) -> MaxEntClassifier:
    """A model that kept its chains, and one that never had any."""
    return MaxEntClassifier(**QUICK, engine=engine).fit(tables)


# --- samples -----------------------------------------------------------------------------------------


def test_samples_are_raw_records_with_their_label(fitted: MaxEntClassifier) -> None:
    drawn = fitted.sample(700)
    assert drawn.column_names == ["colour", "size", "age", "bought"]
    assert drawn.num_rows == 700
    assert set(drawn["colour"].to_pylist()) == set(COLOURS)
    assert set(drawn["size"].to_pylist()) == set(SIZES)
    assert set(drawn["bought"].to_pylist()) == {"yes", "no"}
    ages = drawn["age"].to_numpy()
    assert pa.types.is_integer(drawn["age"].type)
    assert (ages.min() >= 18, ages.max() <= 79, len(np.unique(ages)) > 30) == (True, True, True)


@pytest.mark.parametrize("n", [1, 999, 1000, 1001, 3456])
def test_any_number_can_be_drawn_from_any_number_of_chains(fitted: MaxEntClassifier, n: int) -> None:
    assert fitted.sample(n).num_rows == n


def test_samples_come_in_tables_no_larger_than_the_chains(tables: AggregatedData) -> None:
    model = MaxEntClassifier(**QUICK, training=TrainingSettings(growth=1)).fit(tables).model_
    assert [t.num_rows for t in sample(model, 2500)] == [1000, 1000, 500]


def test_the_seed_decides_the_sample_and_threads_do_not(fitted: MaxEntClassifier) -> None:
    first = fitted.sample(1500, seed=3)
    assert first.equals(fitted.sample(1500, seed=3))
    assert not first.equals(fitted.sample(1500, seed=4))
    for threads in (1, 2):
        assert first.equals(pa.concat_tables(list(sample(fitted.model_, 1500, seed=3, threads=threads))))


@pytest.mark.parametrize(("n", "seed", "message"), [(0, 0, "0 records"), (-3, 0, "-3"), (5, -1, "seed -1")])
def test_an_impossible_sample_is_refused(fitted: MaxEntClassifier, n: int, seed: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted.sample(n, seed=seed)


def test_samples_follow_the_law_of_the_field(fitted: MaxEntClassifier) -> None:
    """Counts of every state with its label, against the enumeration of the field at its weights."""
    model, n = fitted.model_, 30_000
    drawn = fitted.sample(n, seed=1)
    codes = model.schema.encode(drawn).astype(int)
    y = np.array([v == "yes" for v in drawn["bought"].to_pylist()], int)
    states = np.ravel_multi_index(tuple(codes), model.layout.cards)
    seen = np.bincount(2 * states + y, minlength=2 * np.prod(model.layout.cards))
    law = ExactEngine(model.layout, 1.0).probabilities(model.field)
    expected = n * law.reshape(-1)
    # States of small expectation are taken together, so that the statistic has its law.
    rare = expected < 5
    seen = np.append(seen[~rare], seen[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    statistic = ((seen - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    # The chains of a draw are nearly independent of those three sweeps before: of forty seeds the
    # statistic was never above the 0.99 quantile.
    assert statistic < chi2.ppf(0.9999, df=len(seen) - 1)


def test_margins_of_samples_are_those_of_the_tables(tables: AggregatedData) -> None:
    model = MaxEntClassifier(lambda_theta=0.1, lambda_mu=0.1, iterations=200, chains=5000).fit(tables)
    again = aggregate(model.sample(50_000), "bought", positive="yes", schema=tables.schema)
    for scope, table in tables.tables.items():
        share, drawn = table.counts / table.total, again.tables[scope].counts / 50_000
        # Four standard errors, of the sample and of the 5,000 chains that the field was fitted with; a cell
        # without a record keeps at most the one pseudo-record of the start.
        error = np.sqrt(share * (1 - share) * (1 / 50_000 + 1 / 5000))
        assert (np.abs(share - drawn) <= 4 * error + 1 / table.total).all()
        rate = table.sums[0].sum() / table.total
        assert again.tables[scope].sums[0].sum() / 50_000 == pytest.approx(rate, abs=0.02)


def test_a_label_of_many_values_is_drawn_as_its_positive_value_or_not() -> None:
    frame = {"x": ["a", "b", "c"] * 40, "y": ["red", "green", "blue"] * 40}
    model = MaxEntClassifier(**QUICK).fit(aggregate(frame, "y", positive="red"))
    assert set(model.sample(200)["y"].to_pylist()) == {"red", "not red"}
    assert model.classes_.tolist() == [0, 1]


# --- the folder ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(fitted: MaxEntClassifier, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "m.model")
    return tmp_path / "m.model"


def test_a_loaded_model_is_the_saved_one_bit_for_bit(
    fitted: MaxEntClassifier, folder: Path, records: Any
) -> None:
    loaded = MaxEntClassifier.load(folder)
    assert loaded.decision_function(records).tobytes() == fitted.decision_function(records).tobytes()
    assert loaded.sample(1500, seed=2).equals(fitted.sample(1500, seed=2))
    assert loaded.get_params() == {**fitted.get_params(), "label": "bought", "training": TrainingSettings()}
    assert loaded.history_ == fitted.history_
    assert loaded.classes_.tolist() == ["no", "yes"]
    assert loaded.n_iter_ == 30
    saved, model = fitted.model_, loaded.model_
    assert model.field.mu.tobytes() == saved.field.mu.tobytes()
    assert model.field.intercept == saved.field.intercept
    assert (model.chains is None) == (saved.chains is None)
    assert model.record.to_json() == saved.record.to_json()
    assert model.record.history == saved.record.history
    assert model.record.seconds == saved.record.seconds


def test_a_loaded_model_saves_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    save_model(load_model(folder), tmp_path / "again.model")
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "again.model" / path.name).read_bytes()


def test_a_loaded_classifier_can_be_fitted_again(folder: Path, tables: AggregatedData, records: Any) -> None:
    loaded = MaxEntClassifier.load(folder)
    before = loaded.decision_function(records)
    assert loaded.fit(tables).decision_function(records).tobytes() == before.tobytes()


def test_the_folder_holds_plain_json_and_arrow_only(folder: Path, engine: str) -> None:
    names = ["manifest.json", "history.json", "field-mu.arrow", "field-theta.arrow"]
    names += ["field-chains.arrow"] if engine == "local" else []
    assert {p.name for p in folder.iterdir()} == set(names)
    for path in folder.iterdir():
        if path.suffix == ".json":
            assert isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
        else:
            with pa.ipc.open_file(path) as reader:
                assert reader.read_all().num_columns == 1


def test_saving_replaces_a_model_and_nothing_else(fitted: MaxEntClassifier, folder: Path) -> None:
    fitted.save(folder)
    load_model(folder)
    assert [p.name for p in folder.parent.iterdir()] == ["m.model"]
    other = folder.parent / "other.model"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match="not ours to overwrite"):
        fitted.save(other)
    assert (other / "thesis.txt").read_text() == "years of work"


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest and give it the checksum it should have."""
    document = read_json(folder / "manifest.json")
    change(document)
    write_manifest(folder, document)


def edit(folder: Path, old: str, new: str, name: str = "manifest.json") -> None:
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def array_of(folder: Path, **arrays: Any) -> None:
    rewrite(folder, lambda d: d["arrays"].update(write_arrays(folder, "field", arrays)))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "an edited manifest": (lambda f: edit(f, '"lambda_theta"', '"lambda_tau"'), "was changed after"),
    "a manifest cut short": (
        lambda f: (f / "manifest.json").write_text((f / "manifest.json").read_text()[:500]),
        "manifest.json is not JSON",
    ),
    "a manifest of another kind": (lambda f: (f / "manifest.json").write_text("[1]"), "not a JSON object"),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "has no manifest.json"),
    "a version of the future": (
        lambda f: rewrite(f, lambda d: d.update(version=4)),
        "format version 4, and this agglearn reads 1 to 3: use the agglearn that wrote it",
    ),
    "a flipped bit": (lambda f: flip_a_bit(f / "field-theta.arrow"), "field-theta.arrow is damaged"),
    "an array cut short": (
        lambda f: (f / "field-mu.arrow").write_bytes((f / "field-mu.arrow").read_bytes()[:-100]),
        "field-mu.arrow is damaged",
    ),
    "a missing array": (lambda f: (f / "field-theta.arrow").unlink(), "field-theta.arrow is missing"),
    "a missing history": (lambda f: (f / "history.json").unlink(), "history.json does not exist"),
    "a history that is none": (
        lambda f: write_sealed(f / "history.json", {"iterations": 7, "seconds": 1.0}),
        "history.json does not list iterations",
    ),
    "a history without its checksum": (
        lambda f: (f / "history.json").write_text('{"iterations": [], "seconds": 1.0}'),
        "history.json was changed after it was written",
    ),
    "an edited history": (
        lambda f: edit(f, '"misfit_d": 0.', '"misfit_d": 1.', "history.json"),
        "history.json was changed after it was written",
    ),
    "a history cut short": (
        lambda f: (f / "history.json").write_text((f / "history.json").read_text()[:-100]),
        "history.json is not JSON",
    ),
    "a history of iterations that lack what they did": (
        lambda f: write_sealed(f / "history.json", {"iterations": [{"iteration": 1}], "seconds": 1.0}),
        "is damaged .*misfit_d",
    ),
    "a setting there is not": (
        lambda f: rewrite(f, lambda d: d["fit"]["settings"].update(haste=1)),
        "is damaged .*there is no setting 'haste'",
    ),
    "a setting that cannot be": (
        lambda f: rewrite(f, lambda d: d["fit"]["settings"].update(iterations=0)),
        "is damaged .*iterations 0 must be at least 1",
    ),
    "a missing entry": (lambda f: rewrite(f, lambda d: d.pop("intercept")), "is damaged .*intercept"),
    "an intercept in words": (lambda f: rewrite(f, lambda d: d.update(intercept="big")), "is damaged"),
    "a table of features that are not there": (
        lambda f: rewrite(f, lambda d: d.update(tables=[["colour", "taste"]])),
        "is damaged .*hash_sizes must be a list of 1",
    ),
    "weights of other tables": (lambda f: array_of(f, theta=np.zeros(7)), "theta must have 152 numbers"),
    "chains of other features": (
        lambda f: array_of(f, chains=np.zeros((2, 9), np.uint16)),
        "chains do not fit the features",
    ),
    "chains a row each": (
        lambda f: array_of(f, chains=np.zeros((9, 3), np.uint16)),
        "chains do not fit the features",
    ),
    "chains that are no table": (
        lambda f: array_of(f, chains=np.zeros(3, np.uint16)),
        "chains do not fit the features",
    ),
    "chains with values there are not": (
        lambda f: array_of(f, chains=np.full((3, 9), 77, np.uint16)),
        "chains do not fit the features",
    ),
    "no label": (lambda f: rewrite(f, lambda d: d["schema"].update(labels=[])), "is damaged"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_model_is_refused_in_one_line_that_names_it(folder: Path, case: str) -> None:
    damage, message = DAMAGE[case]
    damage(folder)
    with pytest.raises(AgglearnError, match=message) as caught:
        load_model(folder)
    assert isinstance(caught.value, StoreError)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_model_is_refused(tables: AggregatedData, tmp_path: Path) -> None:
    save(tables, tmp_path / "t.agg")
    (tmp_path / "file.model").write_text("a file")
    (tmp_path / "empty.model").mkdir()
    shutil.copytree(tmp_path / "t.agg", tmp_path / "renamed.model")
    for name, message in (
        ("none.model", "does not exist"),
        ("file.model", "is not a folder of agglearn.model"),
        ("empty.model", "has no manifest.json"),
        ("t.agg", "expected agglearn.model, found 'agglearn.tables'"),
        ("renamed.model", "expected agglearn.model, found 'agglearn.tables'"),
    ):
        with pytest.raises(StoreError, match=message) as caught:
            MaxEntClassifier.load(tmp_path / name)
        assert name in str(caught.value)


# --- folders of the first version -------------------------------------------------------------------------

# A field of 5 chains, written by an agglearn that knew version 1 alone; beside it records, what that agglearn
# predicted for them, and its chains, a row each.
FIRST = Path(__file__).parent / "golden" / "model-version-1"


@pytest.fixture
def first(tmp_path: Path) -> Path:
    shutil.copytree(FIRST, tmp_path / "first.model")
    return tmp_path / "first.model"


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FIRST.with_suffix(".json").read_text())
    return document


def test_a_model_of_the_first_version_predicts_what_it_did(first: Path, known: dict[str, Any]) -> None:
    loaded = MaxEntClassifier.load(first)
    expected = [float.fromhex(v) for v in known["log_odds"]]
    # One sum of three numbers, in the order of the tables.
    assert loaded.decision_function(known["records"]).tolist() == expected
    assert loaded.classes_.tolist() == ["no", "yes"]
    assert (loaded.model_.rows, loaded.model_.positives) == (300.0, 188.0)
    assert loaded.model_.scopes == (("colour", "size"), ("colour",))


def test_chains_of_the_first_version_come_as_a_row_for_each_feature(
    first: Path, known: dict[str, Any]
) -> None:
    chains = load_model(first).chains
    assert chains is not None
    assert chains.dtype == np.uint16
    assert chains.flags.c_contiguous
    assert chains.tolist() == [[chain[f] for chain in known["chains"]] for f in range(2)]
    assert MaxEntClassifier.load(first).sample(12).num_rows == 12


def test_the_record_of_the_first_version_is_whole_and_its_settings_nested(first: Path) -> None:
    manifest, history = (json.loads((first / f"{name}.json").read_text()) for name in ("manifest", "history"))
    assert manifest["version"] == 1
    record, settings, summary = load_model(first).record, manifest["settings"], manifest["summary"]
    own = ("lambda_theta", "lambda_mu", "iterations", "chains", "engine", "tolerance", "seed")
    nested = record.settings.to_json()
    assert {name: nested[name] for name in own} == {name: settings[name] for name in own}
    told = {name: value for name, value in settings.items() if name not in own}
    # It found one penalty for all tables, X followed the weights at once, and it had no other way.
    simple: dict[str, Any] = {"law": "one", "momentum": 0.0, "lag": 1.0, "levels": False, "groups": False}
    simple["first_step_mu"] = told["step_mu"]
    usual = {"prior": "single", "strength": 1.0, "rest": TrainingSettings.rest}
    assert nested["training"] == {**told, **usual, **simple}
    assert record.penalties.tolist() == [summary["lambda_theta"]] * len(manifest["tables"])
    assert (record.settings.training.growth, record.settings.training.start) == (1, "independent")
    same = ("iterations", "chains", "lambda_theta", "lambda_mu", "stopped_because", "steps_halved", "tables")
    assert {name: getattr(record, name) for name in same} == {name: summary[name] for name in same}
    assert record.noise is not None
    assert record.noise.counts.tolist() == record.noise.sums.tolist() == summary["noise"] == [1.5, 1.5]
    assert record.choice is not None
    assert record.choice.to_json() == {**summary["choice"], "strength": 1.0}
    gone = ("gamma", "theta_squared")  # which its one penalty was found by
    assert [entry.to_json() for entry in record.history] == [
        {name: value for name, value in entry.items() if name not in gone} for entry in history["iterations"]
    ]
    assert [entry.valid_nllh is None for entry in record.history] == [True, True, False]
    # Version 1 did not keep how long it took in all.
    assert record.seconds == pytest.approx(sum(entry["seconds"] for entry in history["iterations"]))


def test_a_model_of_the_first_version_is_saved_as_one_of_the_second(first: Path, tmp_path: Path) -> None:
    old = load_model(first)
    save_model(old, tmp_path / "second.model")
    assert read_json(tmp_path / "second.model" / "manifest.json")["version"] == 2
    new = load_model(tmp_path / "second.model")
    for a, b in ((old.field.mu, new.field.mu), (old.field.theta, new.field.theta), (old.chains, new.chains)):
        np.testing.assert_array_equal(a, b)
    assert old.field.intercept == new.field.intercept
    assert old.record.to_json() == new.record.to_json()
    assert old.record.history == new.record.history
    assert old.record.seconds == new.record.seconds


def test_a_damaged_model_of_the_first_version_is_refused(first: Path) -> None:
    rewrite(first, lambda d: d["summary"].pop("lambda_mu"))
    with pytest.raises(StoreError, match=r"is damaged .*lambda_mu"):
        load_model(first)


def test_a_model_shows_itself_in_one_line_and_in_a_notebook_as_a_small_page(toy: Any) -> None:
    model = fit(aggregate(toy, "y"), FitSettings(iterations=5, chains=10))
    assert repr(model) == "<Model of y: 3 tables, 18 cells, 5 records>"
    page = model._repr_html_()
    assert page.startswith('<div class="agglearn">')
    assert "Model of y: 3 tables, 18 cells, 5 records" in page
