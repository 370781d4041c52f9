"""Exports really run where they are meant to run, and say what predict_proba says."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import agglearn
from agglearn import AgglearnError, ExportOptions, FitSettings, datasets, export_model
from agglearn.export.onnx import onnx_inputs
from agglearn.export.scorer import Scorer, text_of
from agglearn.model.model import Model
from agglearn.schema.columns import as_text
from agglearn.sql.dialects import DIALECTS
from tests.conftest import Cli
from tests.servers import copy_to_postgresql
from tests.test_sparse import long_records

Floats: TypeAlias = npt.NDArray[np.float64]
Runner: TypeAlias = Callable[[Model, Any, Path], Floats]

FEW = FitSettings(iterations=12, chains=500)  # weights of any size will do
EQUAL = 1e-6  # what is asked for; the differences seen were below 1e-9


class Case(NamedTuple):
    """A model, and records to score."""

    model: Model
    records: Any


# --- where exports run ------------------------------------------------------------------------------------


def on_python(model: Model, records: Any, folder: Path) -> Floats:
    """The one file, in a Python that sees no installed package."""
    export_model(model, folder / "model.py", "python")
    (folder / "records.json").write_text(json.dumps(_plain(model, records)))
    code = (
        "import sys, json; sys.path.insert(0, '.'); import model\n"
        "records = json.load(open('records.json'))\n"
        "print(json.dumps([model.probability(r) for r in records]))\n"
        "assert not any(name.split('.')[0] in ('numpy', 'pyarrow', 'agglearn') for name in sys.modules)"
    )
    return _output([sys.executable, "-I", "-S", "-c", code], folder)


def on_node(model: Model, records: Any, folder: Path) -> Floats:
    """The JavaScript scorer on the JSON document, and the one file: they must agree."""
    if shutil.which("node") is None:
        pytest.skip("no Node.js is installed")
    export_model(model, folder / "model.json", "json")
    export_model(model, folder / "model.js", "javascript")
    (folder / "records.json").write_text(json.dumps(_plain(model, records)))
    scorer = Path(agglearn.__file__).parent / "export" / "scorer.js"
    code = (
        f"const make = require({json.dumps(str(scorer))}), whole = require('./model.js');\n"
        "const read = (name) => JSON.parse(require('fs').readFileSync(name));\n"
        "const scorer = make(read('model.json')), records = read('records.json');\n"
        "const p = records.map(scorer.probability);\n"
        "if (records.some((r, i) => whole.probability(r) !== p[i])) throw new Error('they differ');\n"
        "console.log(JSON.stringify(p))"
    )
    return _output(["node", "-e", code], folder)


def _output(command: list[str], folder: Path) -> Floats:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout), float)


def _plain(model: Model, records: Any) -> list[dict[str, Any]]:
    """Records as JSON has them: dates and times as their text."""
    columns = {}
    for name in model.schema.names:
        column = records.column(name)
        plain = column.type in (pa.string(), pa.bool_(), pa.int64(), pa.float64())
        columns[name] = (column if plain else as_text(column)).to_pylist()
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [{k: None if isinstance(v, float) and np.isnan(v) else v for k, v in row.items()} for row in rows]


def on_duckdb(model: Model, records: Any, folder: Path) -> Floats:
    """A view in DuckDB."""
    export_model(model, folder / "m.sql", "sql", ExportOptions(table='main."the records"', view="scored"))
    with duckdb.connect() as connection:
        connection.register("given", _numbered(records))
        connection.execute('CREATE TABLE "the records" AS SELECT * FROM given')
        connection.execute((folder / "m.sql").read_text())
        found = connection.sql("SELECT * FROM scored ORDER BY number").to_arrow_table()
    assert found.column_names == [*records.column_names, "number", "probability"]
    return np.asarray(found.column("probability").to_numpy())


def on_postgresql(connection: Any) -> Runner:
    """A view in PostgreSQL."""

    def run(model: Model, records: Any, folder: Path) -> Floats:
        options = ExportOptions(dialect="postgresql", table="the records".join('""'), view="scored")
        export_model(model, folder / "m.sql", "sql", options)
        connection.execute("DROP VIEW IF EXISTS scored")
        copy_to_postgresql(connection, _numbered(records), "the records")
        connection.execute((folder / "m.sql").read_text())
        cursor = connection.execute("SELECT * FROM scored ORDER BY number")
        assert [c.name for c in cursor.description] == [*records.column_names, "number", "probability"]
        return np.array([row[-1] for row in cursor.fetchall()], float)

    return run


def _numbered(records: Any) -> Any:
    return records.append_column("number", pa.array(range(len(records))))


def on_onnxruntime(model: Model, records: Any, folder: Path) -> Floats:
    """The graph of raw columns."""
    export_model(model, folder / "m.onnx", "onnx")
    return _run_onnx(folder / "m.onnx", onnx_inputs(model, records))


def on_onnxruntime_with_codes(model: Model, records: Any, folder: Path) -> Floats:
    """The graph of codes."""
    export_model(model, folder / "m.onnx", "onnx", ExportOptions(inputs="codes"))
    codes = model.schema.encode(records.combine_chunks().to_batches()[0]).T.astype(np.int64)
    codes[codes == np.array(model.schema.cards)] = -1
    return _run_onnx(folder / "m.onnx", {"codes": codes})


def _run_onnx(path: Path, inputs: dict[str, Any]) -> Floats:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    log_odds, probability = session.run(["log_odds", "probability"], inputs)
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-log_odds)), atol=1e-12)
    return np.asarray(probability)


RUNNERS = [on_python, on_node, on_duckdb, on_onnxruntime, on_onnxruntime_with_codes]


def agrees(case: Case, run: Runner, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = _classifier(case.model, folder).predict_proba(case.records)[:, 1]
    found = run(case.model, case.records, folder)
    assert found.shape == expected.shape
    assert len(np.unique(expected.round(6))) > 10
    np.testing.assert_allclose(found, expected, rtol=0, atol=EQUAL)


def _classifier(model: Model, folder: Path) -> agglearn.MaxEntClassifier:
    agglearn.save(model, folder / "saved.model")
    return agglearn.MaxEntClassifier.load(folder / "saved.model")


# --- real data --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(shared_data: Path) -> dict[str, Case]:
    """Adult and Bank, as the loaders give them."""
    cases = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGGLEARN_DATA", str(shared_data))
        given = {
            "adult": (datasets.load_adult(download=False)[0], "income", ">50K"),
            "bank": (datasets.load_bank(download=False), "y", "yes"),
        }
    for name, (records, label, positive) in given.items():
        tables = agglearn.aggregate(records, label, positive=positive)
        cases[name] = Case(agglearn.fit(tables, FEW), records.slice(0, 700))
    return cases


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("name", ["adult", "bank"])
def test_real_records_score_as_predicted(
    name: str, run: Runner, real: dict[str, Case], tmp_path: Path
) -> None:
    agrees(real[name], run, tmp_path)


@pytest.mark.parametrize("name", ["adult", "bank"])
def test_real_records_score_as_predicted_in_postgresql(
    name: str, real: dict[str, Case], tmp_path: Path, postgresql: Any
) -> None:
    agrees(real[name], on_postgresql(postgresql), tmp_path)


# --- awkward data -----------------------------------------------------------------------------------------

TEXTS = [
    "007",
    "7",
    "7.0",
    "1e3",
    " 1000",
    "it's",
    'say "hi"',
    "<script>",
    "naïve 🎈",
    "(missing)",
    "a\\b",
    "שלום",
]


def awkward_records(rows: int, seed: int) -> Any:
    """Every kind of column that a model has: with gaps, and with texts that look like something else."""
    rng = np.random.default_rng(seed)

    def holes(values: list[Any], share: float = 0.1) -> list[Any]:
        return [None if u < share else v for u, v in zip(rng.random(rows), values, strict=True)]

    texts = rng.choice(TEXTS, rows).tolist()
    amount = rng.lognormal(3, 1, rows).round(3)
    days = [dt.date(2024, 1, 1) + dt.timedelta(int(k)) for k in rng.integers(0, 5, rows)]
    moments = [dt.datetime(2024, 1, 1, int(h), 30, 0, 500_000 * int(h % 2)) for h in rng.integers(0, 4, rows)]
    y = rng.random(rows) < 0.3 + 0.3 * (amount > 20) * (np.array(texts) == "007")
    return pa.table(
        {
            "text": holes(texts),
            "whole text": texts,
            "whole": pa.array(holes(rng.integers(-3, 4, rows).tolist()), pa.int64()),
            "flag": pa.array(holes((rng.random(rows) < 0.5).tolist()), pa.bool_()),
            "level": pa.array(holes(rng.choice([0.1, 0.25, 5.0, 1e-7], rows).tolist()), pa.float64()),
            "day": pa.array(days, pa.date32()),
            "moment": pa.array(moments, pa.timestamp("us")),
            "amount": pa.array(holes(amount.tolist()), pa.float64()),
            "count": pa.array(rng.poisson(4, rows), pa.int64()),
            "site": rng.choice([f"site{k}" for k in range(300)], rows).tolist(),
            "many": [f"v{int(k)}" for k in rng.zipf(1.5, rows) % 90],
            'odd "name" \\ of $x': rng.choice(["a", "b"], rows).tolist(),
            "y": y.astype(int),
        }
    )


@pytest.fixture(scope="module")
def awkward() -> dict[str, Case]:
    records = awkward_records(1500, 0)
    coding: dict[str, Any] = {
        "categorical": ["whole", "level"],
        "numeric": ["amount", "count"],
        "target_encode": ["site"],
        "bins": 7,
    }
    parts = agglearn.aggregate_split(records, "y", max_modalities=60, **coding)
    schema = parts.train.schema
    unlike = awkward_records(400, 1)
    feature = schema.feature("amount")
    assert isinstance(feature, agglearn.Binned)
    edges = [
        x
        for cut in feature.cuts
        for x in (cut.value, np.nextafter(cut.value, 9e9), np.nextafter(cut.value, -1))
    ]
    amounts = [*edges, np.nan, 1e300, -1e300, *[None] * 400][:400]
    unlike = unlike.set_column(unlike.column_names.index("amount"), "amount", pa.array(amounts, pa.float64()))
    strange = ["never seen", "", "7.00", "TRUE", *TEXTS]
    unlike = unlike.set_column(
        unlike.column_names.index("whole text"), "whole text", pa.array([strange[k % 16] for k in range(400)])
    )
    wholes = pa.array([[99, None, -3, 2, 2**60][k % 5] for k in range(400)], pa.int64())
    unlike = unlike.set_column(unlike.column_names.index("whole"), "whole", wholes)
    names = schema.names
    kinds: dict[str, dict[str, Any]] = {
        "pairs": {},
        "hashed": {"hash_size": 37},
        "triples": {"tables": [names[:3], names[3:6], names[6:9], names[9:12], (names[0], names[7])]},
    }
    cases = {}
    for kind, options in kinds.items():
        tables = agglearn.aggregate(records, "y", schema=schema, **options)
        cases[kind] = Case(agglearn.fit(tables, FEW), unlike.drop_columns(["y"]))
    return cases


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("kind", ["pairs", "hashed", "triples"])
def test_awkward_records_score_as_predicted(
    kind: str, run: Runner, awkward: dict[str, Case], tmp_path: Path
) -> None:
    case = awkward[kind]
    assert any(case.model.layout.buckets) == (kind == "hashed")
    assert {f.kind for f in case.model.schema.features} == {"categorical", "numeric", "encoded"}
    agrees(case, run, tmp_path)


@pytest.mark.parametrize("kind", ["pairs", "hashed", "triples"])
def test_awkward_records_score_as_predicted_in_postgresql(
    kind: str, awkward: dict[str, Case], tmp_path: Path, postgresql: Any
) -> None:
    agrees(awkward[kind], on_postgresql(postgresql), tmp_path)


@pytest.fixture(scope="module")
def sparse() -> Case:
    """Two long columns, and records of which some combinations, and some values, were never seen."""
    tables = agglearn.aggregate(long_records(2000), "y", min_modality_count=1)
    assert any(table.cells.tied for table in tables.tables.values())
    records = pa.table(long_records(300, seed=1)).drop_columns(["y"])
    unlike = pa.table({"a": ["new", "a1"], "b": ["b2", "new"], "c": ["c0", "c1"], "d": ["d2", None]})
    return Case(agglearn.fit(tables, FEW), pa.concat_tables([records, unlike]))


@pytest.mark.parametrize("run", RUNNERS)
def test_records_in_cells_that_were_never_seen_score_as_predicted(
    run: Runner, sparse: Case, tmp_path: Path
) -> None:
    agrees(sparse, run, tmp_path)


def test_a_sparse_table_too_large_to_write_out_is_named(
    sparse: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agglearn.export.sql._MOST_NUMBERS", 10_000)
    monkeypatch.setattr("agglearn.export.onnx._MOST_NUMBERS", 10_000)
    with pytest.raises(AgglearnError, match="table a × b, whose unseen cells have to be written out"):
        export_model(sparse.model, tmp_path / "model.sql", "sql")
    with pytest.raises(AgglearnError, match="hash the largest tables, of which a × b is one"):
        export_model(sparse.model, tmp_path / "model.onnx", "onnx")
    assert not list(tmp_path.iterdir())


def test_a_hashed_table_too_large_to_write_out_is_hashed_inside_the_graph(
    awkward: dict[str, Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agglearn.export.onnx._WRITTEN_OUT", 0)
    agrees(awkward["hashed"], on_onnxruntime, tmp_path)


def test_numbers_in_texts_are_read_as_predict_reads_them(awkward: dict[str, Case], tmp_path: Path) -> None:
    texts = [
        "12",
        " 12.5 ",
        "1e1",
        "+7",
        "1_000",
        "about 40",
        "",
        "nan",
        "inf",
        "-Infinity",
        ".5",
        "0x10",
        "1,5",
    ]
    records = awkward["pairs"].records.slice(0, len(texts))
    place = records.column_names.index("amount")
    records = records.set_column(place, "amount", pa.array(texts))
    for run in (on_python, on_node):
        agrees(Case(awkward["pairs"].model, records), run, tmp_path)


def test_flags_written_as_text_are_read_in_any_case(awkward: dict[str, Case], tmp_path: Path) -> None:
    records = awkward["pairs"].records.slice(0, 60)
    place = records.column_names.index("flag")
    texts = [["true", "True", "TRUE", "false", "False", "yes", None][k % 7] for k in range(60)]
    records = records.set_column(place, "flag", pa.array(texts))
    for run in (on_python, on_node, on_onnxruntime):
        agrees(Case(awkward["pairs"].model, records), run, tmp_path)


@pytest.mark.parametrize(
    "values",
    [
        [
            0.1,
            1e16,
            1.5e21,
            1e-5,
            1.5e-6,
            1e-7,
            123456.789,
            -0.0,
            5.0,
            2.0**53,
            12345678901.5,
            4503599627370495.5,
        ],
        [True, False],
        [dt.date(2024, 1, 31)],
        [dt.datetime(2024, 1, 31, 12, 0, 0, 500_000), dt.datetime(2024, 1, 31)],
        [dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC)],
        [dt.time(1, 2, 3), dt.time(1, 2, 3, 40)],
        [2**62, -5],
    ],
)
def test_the_python_scorer_writes_values_as_the_library_does(values: list[Any]) -> None:
    assert [text_of(v) for v in values] == as_text(pa.array(values)).to_pylist()


# --- what is refused, and what is told --------------------------------------------------------------------


def test_a_document_of_another_version_is_refused(awkward: dict[str, Case], tmp_path: Path) -> None:
    export_model(awkward["pairs"].model, tmp_path / "m.json", "json")
    document = json.loads((tmp_path / "m.json").read_text())
    assert (document["format"], document["version"]) == ("agglearn.scorer", 1)
    with pytest.raises(ValueError, match="version 1 or 2"):
        Scorer({**document, "version": 3})


def test_a_query_that_would_be_too_large_says_what_is_in_the_way(
    awkward: dict[str, Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agglearn.export.sql._MOST_NUMBERS", 500)
    with pytest.raises(AgglearnError, match=r"SQL cannot carry this model: with table .* combinations"):
        export_model(awkward["pairs"].model, tmp_path / "m.sql", "sql")
    assert not list(tmp_path.iterdir())


def test_text_that_a_double_cannot_hold_is_refused_by_name(awkward: dict[str, Case]) -> None:
    records = awkward["pairs"].records.slice(0, 2)
    place = records.column_names.index("amount")
    with pytest.raises(AgglearnError, match="'amount' has text that is no number"):
        onnx_inputs(awkward["pairs"].model, records.set_column(place, "amount", pa.array(["1", "about 40"])))


def test_a_feature_that_has_the_name_of_an_output_is_refused_by_onnx(tmp_path: Path) -> None:
    tables = agglearn.aggregate({"probability": ["a", "b"] * 20, "y": [0, 1] * 20}, "y")
    with pytest.raises(AgglearnError, match="both called 'probability'"):
        export_model(agglearn.fit(tables, FEW), tmp_path / "m.onnx", "onnx")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_has_a_query_that_names_every_feature(
    dialect: str, awkward: dict[str, Case], tmp_path: Path
) -> None:
    model = awkward["pairs"].model
    export_model(model, tmp_path / "m.sql", "sql", ExportOptions(dialect=dialect, table="sales.events"))
    text = (tmp_path / "m.sql").read_text()
    for name in model.schema.names:
        assert DIALECTS[dialect].name(name) in text
    assert DIALECTS[dialect].path("sales.events") in text


def test_the_command_line_exports_and_says_what_it_wrote(
    awkward: dict[str, Case], run_cli: Cli, tmp_path: Path
) -> None:
    agglearn.save(awkward["pairs"].model, tmp_path / "m.model")
    for name in ("json", "python", "javascript", "sql", "onnx"):
        done = run_cli("export", tmp_path / "m.model", "--format", name, "-o", tmp_path / name, "--json")
        assert done.json["bytes"] == (tmp_path / name).stat().st_size
    refused = run_cli("export", tmp_path / "m.model", "--format", "pmml", "-o", tmp_path / "m.pmml")
    assert refused.code == 2
    assert "'pmml' is not one of onnx, sql, json, python, javascript" in refused.err
    assert not (tmp_path / "m.pmml").exists()


def test_the_one_file_scores_a_csv_on_the_command_line(toy: Any, tmp_path: Path) -> None:
    model = agglearn.fit(agglearn.aggregate(toy, "y", categorical=["*"]), replace(FEW, chains=100))
    export_model(model, tmp_path / "m.py", "python")
    pacsv.write_csv(toy, tmp_path / "toy.csv")
    with (tmp_path / "toy.csv").open() as source:
        done = subprocess.run(
            [sys.executable, "-I", "-S", tmp_path / "m.py"], stdin=source, capture_output=True
        )
    (tmp_path / "scored.csv").write_bytes(done.stdout)
    found = pacsv.read_csv(tmp_path / "scored.csv").column("probability").to_numpy()
    np.testing.assert_allclose(found, _classifier(model, tmp_path).predict_proba(toy)[:, 1], atol=1e-9)
