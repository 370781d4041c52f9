"""Tables made elsewhere become aggregated data, with what was declared of their numbers."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agglearn
from agglearn.aggregation.api import aggregate
from agglearn.datasets.simulate import write_adkdd_like
from agglearn.errors import AgglearnError, InputError, TableError, TooLargeError
from agglearn.receive import read_adkdd, read_tables, receive_adkdd, receive_tables
from agglearn.schema.features import Binned, Categorical, Cut, Encoded
from agglearn.schema.schema import Label, Schema
from agglearn.tables.check import check
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import save
from agglearn.tables.noise import Noise
from agglearn.tables.table import Table

TOY = {
    "x1,x2": "x1,x2,count,y\n1,A,1,0\n1,B,2,1\n2,A,1,1\n2,B,1,1\n",
    "x1,x3": "x1,x3,count,y\n1,a,1,1\n1,b,2,0\n2,a,1,1\n2,b,1,1\n",
    "x2,x3": "x2,x3,count,y\nA,b,2,1\nB,a,2,2\nB,b,1,0\n",
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return make


@pytest.fixture
def toy_files(write: Callable[..., Path]) -> list[Path]:
    return [write(f"{name}.csv", text) for name, text in TOY.items()]


def small_schema() -> Schema:
    return Schema(
        (
            Categorical(name="colour", values=("NA", "red"), other=True, missing=True),
            Categorical(name="code", values=("5", "07"), missing=False),
            Categorical(name="level", values=("1", "2"), value_type="integer", missing=False),
            Binned(name="age", cuts=(Cut(0.0, after=True), Cut(20.0)), low=0, high=90, missing=True),
            Encoded(
                name="site",
                groups=("never seen", "big", "small"),
                values=("a.com", "b.com"),
                codes=(1, 2),
                missing=False,
            ),
        ),
        (Label("click"), Label("sale")),
    )


# --- files of one table each -----------------------------------------------------------------------


def test_the_papers_toy_tables_are_received_as_aggregated(toy_files: list[Path], toy: Any) -> None:
    expected = aggregate(toy, "y")
    data = receive_tables(toy_files, label="y", schema=expected.schema)
    assert data.equals(expected)
    assert data.table("x1", "x2").counts.dtype == np.int64


def test_without_a_schema_the_vocabulary_is_what_the_files_hold(toy_files: list[Path], toy: Any) -> None:
    received = read_tables(toy_files, label="y")
    assert received.data.schema.names == ("x1", "x2", "x3")
    assert [f.modalities for f in received.data.schema.features] == [("1", "2"), ("A", "B"), ("a", "b")]
    assert received.data.equals(aggregate(toy, "y", categorical=["x1"], schema=received.data.schema))
    assert [note.modalities for note in received.notes] == [2, 2, 2]


@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz", "csv.zst", "parquet", "arrow"])
def test_every_file_format_gives_the_same_tables(
    kind: str, tmp_path: Path, toy_files: list[Path], toy: Any
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    for path in toy_files:
        table = pacsv.read_csv(path)
        target = folder / f"{path.stem}.{kind}"
        if kind == "parquet":
            pq.write_table(table, target)
        elif kind == "arrow":
            feather.write_feather(table, str(target))
        else:
            options = pacsv.WriteOptions(delimiter="\t" if kind == "tsv" else ",")
            with pa.output_stream(target, compression="detect") as stream:
                pacsv.write_csv(table, stream, options)
    data = receive_tables(folder, label="y")
    assert data.equals(aggregate(toy, "y", schema=data.schema))


def test_the_tables_of_a_stored_aggregation_are_received_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 500
    records = {
        "size": np.where(rng.random(n) < 0.5, 0.0, rng.normal(size=n)),
        "name": [None if i % 7 == 0 else f"v{i % 23}" for i in rng.integers(0, 100, n)],
        "count": rng.integers(0, 3, n),
        "y": rng.integers(0, 2, n),
    }
    data = aggregate(records, "y", max_modalities=9, tables="singles,pairs,size*name*count")
    save(data, tmp_path / "data.agg")
    assert receive_tables(tmp_path / "data.agg" / "tables", schema=str(tmp_path / "data.agg")).equals(data)


def test_values_may_be_modalities_or_as_they_were_in_the_records(write: Callable[..., Path]) -> None:
    path = write(
        "t.csv",
        "colour,count,click,sale\nNA,1,0,0\nred,2,1,0\n(other),4,1,1\npink,8,0,0\n(missing),16,2,0\n,32,3,1\n",
    )
    data = receive_tables(path, schema=small_schema())
    assert data.table("colour").counts.tolist() == [1, 2, 12, 48]
    assert data.table("colour").sums.tolist() == [[0, 1, 1, 5], [0, 0, 1, 1]]
    path = write("u.csv", "age,count,click,sale\n≤ 0,1,0,0\n-3,2,0,0\n20,4,0,0\n≥ 20,8,0,0\n(0; 20),16,0,0\n")
    received = read_tables(path, schema=small_schema())
    assert received.data.table("age").counts.tolist() == [3, 0, 12, 0]
    assert received.unknown == {"age": 16}
    path = write("v.csv", "site,count,click,sale\nbig,1,0,0\na.com,2,0,0\nb.com,4,0,0\nc.com,8,0,0\n")
    assert receive_tables(path, schema=small_schema()).table("site").counts.tolist() == [8, 3, 4]


def test_an_integer_written_as_a_float_is_the_same_value(write: Callable[..., Path]) -> None:
    path = write("t.csv", "level,count,click,sale\n1.0,1,0,0\n1,2,0,0\n2.0,4,0,0\n2.5,8,0,0\n")
    received = read_tables(path, schema=small_schema())
    assert received.data.table("level").counts.tolist() == [3, 4]
    assert received.unknown == {"level": 8}
    # A number is one value however written, and 07 is a code: not 7.
    path = write("u.csv", "code,count,click,sale\n07,1,0,0\n7,2,0,0\n5,4,0,0\n5.0,8,0,0\n")
    assert receive_tables(path, schema=small_schema()).table("code").counts.tolist() == [12, 1]


def test_unknown_values_are_kept_apart_and_reported(write: Callable[..., Path]) -> None:
    files = [
        write("t.csv", "code,level,count,click,sale\n5,1,10,4,1\n6,1,3,2,1\n5,9,2,1,0\n,1,1,1,1\n"),
        write("u.csv", "code,count,click,sale\n5,12,5,1\n6,4,3,2\n"),
    ]
    received = read_tables(files, schema=small_schema())
    table = received.data.table("code", "level")
    assert table.counts.tolist() == [[10, 0], [0, 0]]
    assert table.unknown.tolist() == [6, 4, 2]
    assert table.total == 16
    assert received.unknown == {"code": 4, "level": 2}


def test_rows_of_one_cell_are_added_up(write: Callable[..., Path]) -> None:
    path = write("t.csv", "a,count,y\nx,1,1\nz,5,0\nx,2,1\n")
    data = receive_tables(path, label="y")
    assert data.table("a").counts.tolist() == [3, 5]
    assert data.table("a").sums[0].tolist() == [2, 0]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 9)), min_size=1))
def test_any_rows_add_up_to_the_table_of_their_records(rows: list[tuple[str, str, int]]) -> None:
    """A row of count n is n records: the table is that of the records, however the rows are cut."""
    import tempfile

    rows = [*rows, ("a", "x", 1)]
    records = [(a, b, i % 2) for a, b, n in rows for i in range(n)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        lines = [f"{a},{b},{n},{n // 2}" for a, b, n in rows]
        path.write_text("\n".join(["a,b,count,y", *lines]) + "\n")
        data = receive_tables(path, label="y")
    columns = {name: [r[i] for r in records] for i, name in enumerate("ab")}
    assert data.equals(aggregate(columns | {"y": [r[2] for r in records]}, "y", schema=data.schema))


def test_the_order_of_columns_and_of_files_does_not_matter(write: Callable[..., Path], toy: Any) -> None:
    expected = aggregate(toy, "y")
    turned = "y,x2,COUNT,x1\n0,A,1,1\n1,B,2,1\n1,A,1,2\n1,B,1,2\n"
    data = receive_tables(write("t.csv", turned), schema=expected.schema)
    assert list(data.tables) == [("x1", "x2")]
    np.testing.assert_array_equal(data.table("x1", "x2").counts, expected.table("x1", "x2").counts)


@pytest.mark.parametrize(
    ("header", "count"),
    [
        ("a,Count,y", None),
        ("a,N,y", None),
        ("a,examples,y", None),
        ("a,how_many,y", "how_many"),
        ("a,count_,y", None),
    ],
)
def test_the_count_is_found_by_its_name_or_told(
    header: str, count: str | None, write: Callable[..., Path]
) -> None:
    data = receive_tables(write("t.csv", f"{header}\nx,3,1\n"), label="y", count=count)
    assert data.schema.names == ("a",)
    assert data.rows == 3


def test_a_feature_called_count_is_told_from_the_count(write: Callable[..., Path]) -> None:
    data = receive_tables(write("t.csv", "count,count_,y\nx,3,1\nz,4,1\n"), label="y")
    assert data.schema.names == ("count",)
    assert data.table("count").counts.tolist() == [3, 4]


def test_large_integers_stay_exact(write: Callable[..., Path]) -> None:
    data = receive_tables(write("t.csv", f"a,count,y\nx,{2**60 + 1},{2**60 - 1}\n"), label="y")
    assert data.table("a").counts.tolist() == [2**60 + 1]
    assert data.table("a").sums.tolist() == [[2**60 - 1]]


def test_whole_numbers_written_as_floats_are_integers(write: Callable[..., Path]) -> None:
    data = receive_tables(write("t.csv", "a,count,y\nx,3.0,1\nz,4,2.0\n"), label="y")
    assert data.table("a").counts.dtype == np.int64
    assert data.table("a").exact


def test_fractions_are_kept_as_floats(write: Callable[..., Path]) -> None:
    rows = "x,3,1\n" * 5 + "z,2.5,0.25\n"
    data = receive_tables(write("t.csv", "a,count,y\n" + rows), label="y", noise=Noise("gaussian", 1.0))
    assert data.table("a").counts.tolist() == [15.0, 2.5]
    assert data.table("a").sums.tolist() == [[5.0, 0.25]]


def test_hashing_folds_the_rows_as_aggregate_folds_records(toy_files: list[Path], toy: Any) -> None:
    expected = aggregate(toy, "y", hash_size=3)
    data = receive_tables(toy_files, schema=expected.schema, hash_size=3)
    assert all(t.cells.buckets for t in data.tables.values())
    assert data.equals(expected)


def test_rare_values_are_folded_without_a_schema(write: Callable[..., Path]) -> None:
    files = [
        write("t.csv", "a,b,count,y\np,u,9,1\nq,u,1,0\nr,u,5,0\n"),
        write("u.csv", "a,count,y\np,9,1\nq,1,0\nr,5,0\n"),
    ]
    received = read_tables(files, label="y", max_modalities=2)
    assert received.data.schema.feature("a").modalities == ("p", "r", "(other)")
    assert received.data.table("a").counts.tolist() == [9, 5, 1]
    assert "folded" in received.notes[0].why


# --- what is declared ------------------------------------------------------------------------------


def test_declared_noise_makes_floats_and_allows_negative_counts(write: Callable[..., Path]) -> None:
    path = write("t.csv", "a,count,y\nx,-3,-1\nz,12,4\n")
    table = receive_tables(path, label="y", noise=Noise("laplace", 2.0)).table("a")
    assert table.noise == Noise("laplace", 2.0)
    assert table.counts.dtype == np.float64
    assert table.counts.tolist() == [-3.0, 12.0]
    undeclared = receive_tables(path, label="y")
    assert [p.kind for p in check(undeclared).problems] == ["negative count"]


@pytest.mark.parametrize(
    ("options", "absent", "measured"),
    [
        ({}, "zero", None),
        ({"floor": 5}, "suppressed", [[True, False], [True, True]]),
        ({"absent": "suppressed"}, "suppressed", [[True, False], [True, True]]),
        ({"absent": "unmeasured"}, "unmeasured", [[True, False], [True, True]]),
    ],
)
def test_a_cell_without_a_row_means_what_is_declared(
    options: dict[str, Any], absent: str, measured: Any, write: Callable[..., Path]
) -> None:
    path = write("t.csv", "a,b,count,y\nx,u,7,1\nz,u,8,0\nz,w,9,0\n")
    data = receive_tables(path, label="y", **options)
    table = data.table("a", "b")
    assert data.absent == absent
    assert data.floor == options.get("floor")
    assert (None if table.measured is None else table.measured.tolist()) == measured
    assert table.counts.tolist() == [[7, 0], [8, 9]]


def test_a_table_with_a_row_for_every_cell_is_measured_whole(write: Callable[..., Path]) -> None:
    data = receive_tables(write("t.csv", "a,count,y\nx,7,1\nz,8,0\n"), label="y", floor=5)
    assert data.table("a").measured is None


def three_singles(write: Callable[..., Path], totals: list[float]) -> list[Path]:
    return [write(f"{i}.csv", f"f{i},count,y\nx,{total},{total / 10}\n") for i, total in enumerate(totals)]


def test_the_number_of_records_is_what_the_tables_agree_on(write: Callable[..., Path]) -> None:
    data = receive_tables(three_singles(write, [30, 30, 30]), label="y")
    assert (data.rows, data.positives) == (30, (3,))
    assert check(data).ok


def test_tables_that_disagree_are_received_and_found_by_check(write: Callable[..., Path]) -> None:
    data = receive_tables(three_singles(write, [30, 30, 50]), label="y")
    assert data.rows == 30
    assert not check(data).ok


def test_the_number_of_noisy_records_is_the_median_of_the_smallest_tables(
    write: Callable[..., Path],
) -> None:
    files = three_singles(write, [28.5, 30.5, 90.0])
    files.append(write("pair.csv", "f0,f1,count,y\nx,x,55.5,2.0\n"))
    data = receive_tables(files, label="y", noise=Noise("gaussian", 3.0))
    assert data.rows == 30.5
    assert data.positives == pytest.approx((3.05,))


def test_suppression_only_takes_away_so_the_greatest_total_counts(write: Callable[..., Path]) -> None:
    data = receive_tables(three_singles(write, [20, 30, 10]), label="y", floor=5)
    assert data.rows == 30


def test_the_number_of_records_can_be_told(write: Callable[..., Path]) -> None:
    data = receive_tables(three_singles(write, [20, 30, 10]), label="y", floor=5, rows=33, positives=[4])
    assert (data.rows, data.positives) == (33, (4,))


# --- bad input -------------------------------------------------------------------------------------

BAD = {
    "no count": ("a,y\nx,1\n", {}, "no column called count"),
    "two counts": ("a,count,n,y\nx,1,1,1\n", {}, "count in 'count', 'n': say which with count"),
    "the count told is not there": ("a,count,y\nx,1,1\n", {"count": "c"}, "no column 'c' for the count"),
    "no sum of the label": ("a,count\nx,1\n", {}, "no column 'y' with the sum"),
    "no label named": ("a,count,y\nx,1,1\n", {"label": None}, "no label is named"),
    "a word for a count": ("a,count,y\nx,1,1\nz,many,0\n", {}, "'count' has 'many' in row 2"),
    "a number with a comma": ('a,count,y\nx,"1,000",1\n', {}, "'count' has '1,000' in row 1"),
    "NaN": ("a,count,y\nx,NaN,1\n", {}, "'count' has 'NaN' in row 1"),
    "infinite": ("a,count,y\nx,1,inf\n", {}, "'y' has 'inf' in row 1"),
    "an empty number": ("a,count,y\nx,1,\n", {}, "'y' has no value in row 1"),
    "an empty file": ("", {}, "is empty"),
    "a header only": ("a,count,y\n", {}, "has no rows"),
    "numbers only": ("count,y\n1,1\n", {}, "no column besides its numbers"),
    "a column twice": ("a,a,count,y\nx,x,1,1\n", {}, "'a' stands twice"),
    "ragged rows": ("a,count,y\nx,1\n", {}, "t.csv"),
    "not text": (b"a,count,y\n\xff\xfe,1,1\n", {}, "encoding"),
    "a senseless floor": ("a,count,y\nx,1,1\n", {"floor": 0}, "floor 0 must be above 0"),
    "senseless rows": ("a,count,y\nx,1,1\n", {"rows": -1}, "rows -1 must be above 0"),
    "a senseless absence": ("a,count,y\nx,1,1\n", {"absent": "gone"}, "absent='gone' is not one of"),
    "zero below a floor": ("a,count,y\nx,1,1\n", {"absent": "zero", "floor": 3}, "cannot mean zero"),
    "too few buckets": ("a,count,y\nx,1,1\n", {"hash_size": 1}, "hash_size=1 is too small"),
    "positives for one label": ("a,count,y\nx,1,1\n", {"positives": [1, 2]}, "2 numbers of positives"),
    "a feature the schema lacks": ("b,count,click,sale\nx,1,1,1\n", {"schema": 1}, "column 'b', which the"),
    "a label the file lacks": ("age,count,click\n5,1,1\n", {"schema": 1}, "no column 'sale'"),
    "only missing values": ("a,count,y\n,1,1\n", {}, "'a' has no value"),
    "a rate": (
        "a,count,y\nx,4,0.25\nz,8,0.5\n",
        {},
        "'y' has 0.25 in row 1; it looks like a rate",
    ),
    "a weighted count": (
        "a,count,y\nx,4.5,1\n",
        {},
        "'count' has 4.5 in row 1; exact tables",
    ),
}


@pytest.mark.parametrize(("text", "options", "message"), BAD.values(), ids=BAD)
def test_bad_files_and_options_are_refused_in_one_line(
    text: str | bytes, options: dict[str, Any], message: str, write: Callable[..., Path]
) -> None:
    options = {"label": "y"} | options
    if "schema" in options:
        options = {"schema": small_schema()}
    with pytest.raises(AgglearnError, match="(?s)" + message) as raised:
        receive_tables(write("t.csv", text), **options)
    assert "\n" not in str(raised.value)


def test_two_files_over_the_same_features_are_refused(write: Callable[..., Path]) -> None:
    files = [write("t.csv", "a,b,count,y\nx,u,1,1\n"), write("u.csv", "b,a,count,y\nu,x,1,1\n")]
    with pytest.raises(TableError, match=r"u\.csv and .*t\.csv are both the table b × a"):
        receive_tables(files, label="y")


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv does not exist"):
        receive_tables(tmp_path / "none.csv", label="y")
    with pytest.raises(InputError, match="no file is given"):
        receive_tables([], label="y")


def test_tables_that_would_not_fit_are_refused(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGGLEARN_MEMORY", "1MB")
    rows = "".join(f"a{i},b{i},1,0\n" for i in range(400))
    path = write("t.csv", "a,b,count,y\n" + rows)
    assert receive_tables(path, label="y").table("a", "b").n_cells == 401  # of 160,000 that there could be
    monkeypatch.setenv("AGGLEARN_MEMORY", "10KiB")
    with pytest.raises(TooLargeError, match="a × b with 400"):
        receive_tables(path, label="y")


# --- the AdKDD'21 challenge ------------------------------------------------------------------------

ROWS = 3000


@pytest.fixture(scope="module")
def challenge(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Exact tables in the challenge's format, and what they were counted from."""
    folder = tmp_path_factory.mktemp("adkdd")
    return folder, write_adkdd_like(folder, ROWS, seed=3, noise_sigma=0.0, max_modalities=30)


def counted(log: Any, scope: tuple[int, ...], data: AggregatedData) -> tuple[Any, Any]:
    """Counts and clicks over some features, counted from the records by numpy."""
    codes, click = log.sample(ROWS + 2 * (ROWS // 10), 3)
    names = [f"hash_{i}" for i in scope]
    shape = tuple(data.schema.feature(n).n_modalities for n in names)
    counts, clicks = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, y in zip(codes[:ROWS, list(scope)].tolist(), click[:ROWS].tolist(), strict=True):
        cell = tuple(data.schema.feature(n).code_of[str(v)] for n, v in zip(names, row, strict=True))
        counts[cell] += 1
        clicks[cell] += y
    return counts, clicks


def test_the_challenge_gives_all_singles_and_pairs(challenge: tuple[Path, Any]) -> None:
    folder, log = challenge
    data = receive_adkdd(folder, noise=None)
    names = [f"hash_{i}" for i in range(19)]
    assert data.schema.names == tuple(names)
    assert data.schema.label_names == ("click", "sale")
    assert list(data.tables) == [(n,) for n in names] + list(combinations(names, 2))
    assert data.rows == ROWS
    for scope in [(0,), (18,), (2, 11)]:
        counts, clicks = counted(log, scope, data)
        table = data.tables[tuple(f"hash_{i}" for i in scope)]
        released = counts > (10 if len(scope) == 2 else 0)
        np.testing.assert_array_equal(table.counts, np.where(released, counts, 0))
        np.testing.assert_array_equal(table.sums[0], np.where(released, clicks, 0))
        if table.measured is not None:
            np.testing.assert_array_equal(table.measured, released)


def test_the_challenge_is_declared_noisy_and_suppressed(tmp_path: Path) -> None:
    write_adkdd_like(tmp_path, 20_000, seed=0, max_modalities=30)
    data = receive_adkdd([tmp_path / "aggregated_noisy_data_singles.csv.gz"])
    assert (data.absent, data.floor) == ("suppressed", 11)
    assert all(t.noise == Noise("gaussian", 17.0) for t in data.tables.values())
    # The median of 19 totals, each of 30 noisy cells at most: 4·17·√30 is beyond any of them.
    assert data.rows == pytest.approx(20_000, abs=4 * 17 * np.sqrt(30))
    whole = receive_adkdd(tmp_path)
    assert len(whole.tables) == 19 + 171
    report = check(whole)
    assert report.ok
    # Six seeds gave 16.9 to 17.1.
    assert report.noise_implied == pytest.approx(17.0, rel=0.03)


def test_without_singles_the_pairs_give_the_vocabulary(challenge: tuple[Path, Any]) -> None:
    folder, _ = challenge
    received = read_adkdd(folder / "aggregated_noisy_data_pairs.csv.gz", noise=None)
    assert len(received.data.tables) == 171
    assert received.unknown == {}


def test_a_schema_decides_the_codes(challenge: tuple[Path, Any]) -> None:
    folder, log = challenge
    learnt = receive_adkdd(folder, noise=None)
    features = tuple(
        Categorical(name=f.name, values=f.modalities[:3], value_type="integer", missing=False)
        for f in learnt.schema.features
    )
    received = read_adkdd(folder, noise=None, schema=Schema(features, learnt.schema.labels))
    counts, _ = counted(log, (4,), learnt)
    table = received.data.table("hash_4")
    assert table.counts.tolist() == counts[:3].tolist()
    assert table.unknown[0] == ROWS - counts[:3].sum()
    assert received.unknown["hash_4"] == ROWS - counts[:3].sum()


def test_rare_values_of_the_challenge_are_folded_and_large_tables_hashed(
    challenge: tuple[Path, Any],
) -> None:
    folder, log = challenge
    whole = receive_adkdd(folder, noise=None)
    received = read_adkdd(folder, noise=None, max_modalities=5, hash_size=20)
    data = received.data
    counts, _ = counted(log, (0,), whole)
    feature = data.schema.feature("hash_0")
    assert feature.n_modalities == 6
    assert feature.modalities[-1] == "(other)"
    assert data.table("hash_0").counts.sum() == ROWS
    assert sorted(data.table("hash_0").counts[:5].tolist()) == sorted(counts.tolist())[-5:]
    pair = data.tables["hash_0", "hash_1"]
    assert pair.cells.buckets
    assert pair.counts.shape == (20,)
    assert pair.counts.sum() == whole.tables["hash_0", "hash_1"].counts.sum()


def test_rows_in_any_order_and_values_of_any_kind_are_read(write: Callable[..., Path]) -> None:
    text = (
        ",feature_2_value,feature_1_value,feature_2_id,feature_1_id,count,nb_clicks,nb_sales\n"
        "0,p,-5,2,10,20,4,1\n"
        "1,r,q,10,3,30,5,2\n"
        "2,q,-5,2,10,40,6,3\n"
    )
    data = receive_adkdd(write("pairs.csv.gz", gzip.compress(text.encode())), noise=None, floor=None)
    assert list(data.tables) == [("hash_2", "hash_10"), ("hash_3", "hash_10")]
    assert data.schema.feature("hash_10").modalities == ("-5", "r")
    assert data.table("hash_2", "hash_10").counts.tolist() == [[20, 0], [40, 0]]
    assert data.table("hash_3", "hash_10").counts.tolist() == [[0, 30]]
    assert data.table("hash_2", "hash_10").sums.tolist() == [[[4, 0], [6, 0]], [[1, 0], [3, 0]]]


HEADER = "feature_1_value,feature_1_id,count,nb_clicks,nb_sales\n"
BAD_CHALLENGE = {
    "records": ("hash_0,click,sale\n1,0,0\n", "no column 'feature_1_value'"),
    "no sales": ("feature_1_value,feature_1_id,count,nb_clicks\n1,0,5,1\n", "no column 'nb_sales'"),
    "no rows": (HEADER, "has no rows"),
    "empty": ("", "is empty"),
    "a word for an id": (HEADER + "1,x,5,1,0\n", "'feature_1_id' has 'x' in row 1"),
    "a fraction for an id": (HEADER + "1,0.5,5,1,0\n", "not the id of a feature"),
    "a negative id": (HEADER + "1,-1,5,1,0\n", "not the id of a feature"),
    "NaN": (HEADER + "1,0,5,1,0\n1,0,nan,1,0\n", "'count' has 'nan' in row 2"),
    "itself": (
        "feature_1_value,feature_2_value,feature_1_id,feature_2_id,count,nb_clicks,nb_sales\n1,1,4,4,5,1,0\n",
        "feature 4 with itself",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD_CHALLENGE.values(), ids=BAD_CHALLENGE)
def test_files_in_another_format_are_refused(text: str, message: str, write: Callable[..., Path]) -> None:
    with pytest.raises(AgglearnError, match=message):
        receive_adkdd(write("t.csv", text))


def test_the_same_tables_twice_are_refused(write: Callable[..., Path], tmp_path: Path) -> None:
    rows = HEADER + "1,0,5,1,0\n2,0,5,1,0\n"
    files = [write("a.csv", rows), write("b.csv.gz", gzip.compress(rows.encode()))]
    with pytest.raises(TableError, match="both have the table hash_0"):
        receive_adkdd(files)
    with pytest.raises(InputError, match="holds no aggregated_noisy_data"):
        receive_adkdd(tmp_path)


def test_pairs_of_a_feature_without_singles_are_refused(write: Callable[..., Path]) -> None:
    pairs = (
        "feature_1_value,feature_2_value,feature_1_id,feature_2_id,count,nb_clicks,nb_sales\n1,1,0,1,5,1,0\n"
    )
    files = [write("singles.csv", HEADER + "1,0,5,1,0\n"), write("pairs.csv", pairs)]
    with pytest.raises(InputError, match=r"pairs\.csv has tables of 'hash_1'"):
        receive_adkdd(files)


@pytest.mark.parametrize("number", ["1e300", "-1e19", str(2**64)])
def test_a_number_that_no_count_can_be_is_refused(
    write: Callable[..., Path], tmp_path: Path, number: str
) -> None:
    path = write("toy.csv", f"x1,x2,count,y\n1,A,1,0\n1,B,{number},1\n")
    with pytest.raises(InputError, match=r"'count' has .* in row 2, where a number up to 2⁶³ is needed"):
        receive_tables([path], label="y")
    table = Table(("x1",), np.array([1.0, float(number)]), np.array([[0.0, 1.0]]))
    schema = Schema((Categorical(name="x1", values=("a", "b"), missing=False),), (Label("y"),))
    save(AggregatedData(schema, {("x1",): table}, 2, (1,)), tmp_path / "forged.agg")
    with pytest.raises(AgglearnError, match="must have no number beyond"):
        agglearn.load(tmp_path / "forged.agg")
