"""A user's mistake is exit code 2 and one line that says what, where and what to do; nothing is left."""

from __future__ import annotations

import gzip
import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

GOOD = "x1,x2,y\n1,B,1\n2,A,1\n1,B,0\n2,B,1\n1,A,0\n"


@dataclass(frozen=True)
class Case:
    """Files by name, what is typed after ``agglearn``, and a pattern that the one line must match."""

    message: str
    args: str = "aggregate in.csv --label y -o out.agg"
    files: dict[str, str | bytes | Callable[[Path], object]] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        return [*self.args.split(), *self.more]


def records(text: str | bytes, message: str, *more: str) -> Case:
    """A case of a CSV file that is wrong."""
    return Case(message, files={"in.csv": text}, more=more)


def options(*more: str, message: str) -> Case:
    """A case of options that are wrong for a file that is right."""
    return Case(message, files={"in.csv": GOOD}, more=more)


def inputs(name: str, content: str | bytes | Callable[[Path], object], message: str) -> Case:
    """A case of an input that cannot be read."""
    return Case(message, args=f"aggregate {name} --label y -o out.agg", files={name: content})


def outputs(target: str, message: str, **files: str | bytes | Callable[[Path], object]) -> Case:
    """A case of an output that cannot be written."""
    return Case(message, args=f"aggregate in.csv --label y -o {target}", files={"in.csv": GOOD, **files})


def parquet(**columns: Any) -> Callable[[Path], object]:
    return lambda path: pq.write_table(pa.table(columns), path)


def parquet_bytes(cut: slice) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"x": list(range(1000)), "y": [0, 1] * 500}), buffer)
    return buffer.getvalue()[cut]


def scrambled_parquet() -> bytes:
    data = bytearray(parquet_bytes(slice(None)))
    data[20:400] = bytes(380)
    return bytes(data)


def database(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (x INTEGER, y INTEGER)")
        connection.execute("CREATE TABLE u (x INTEGER, y INTEGER)")


def make_tables(path: Path) -> None:
    """A good .agg over x1 and x2."""
    from agglearn.aggregation.api import aggregate
    from agglearn.tables.format import save

    save(aggregate({"x1": [1, 2, 1], "x2": ["A", "B", "B"], "y": [0, 1, 1]}, "y"), path)


LONG = GOOD.replace("2,A,1", "2,A,1,extra")

CASES: dict[str, Case] = {
    # --- the label
    "no such label": records(
        GOOD.replace("y", "z"), "label 'y' is not in the records, whose columns are 'x1', 'x2', 'z'"
    ),
    "label of another case": records(GOOD.replace("y", "Y"), "label 'y' is not in the records"),
    "label with a third value": records(
        GOOD.replace("B,0", "B,2"),
        "label 'y' has the value '2' in record 3 of in.csv \\(line 4\\), neither 0/1 nor true/false: name "
        "the positive one with --positive",
    ),
    "label of words": records(
        GOOD.replace("B,0", "B,no").replace(",1\n", ",yes\n"), "label 'y' has the value 'yes'.*--positive"
    ),
    "label missing in a record": records(
        GOOD.replace("B,0", "B,"), r"label 'y' is missing in record 3 of in\.csv \(line 4\)"
    ),
    "label NaN in a record": records(GOOD.replace("B,0", "B,NaN"), "label 'y' is missing in record 3"),
    "label fractional": records(GOOD.replace("B,0", "B,0.5"), "label 'y' has the value '0.5'"),
    "positive value that never occurs": options(
        "--positive", ">50K", message="no record has y = '>50K', which --positive names"
    ),
    "positive value with gaps": records(
        GOOD.replace("B,0", "B,"), "label 'y' is missing in record 3", "--positive", "1"
    ),
    "label twice": options("--label", "y", message="column 'y' stands twice"),
    "label as a feature": options(
        "--features", "x1,y", message="column 'y' cannot be both a feature and a label"
    ),
    "no label at all": Case(
        "Missing option '--label'", args="aggregate in.csv -o out.agg", files={"in.csv": GOOD}
    ),
    "empty label": Case(
        "no label is named", args="aggregate in.csv -o out.agg", more=("--label", ""), files={"in.csv": GOOD}
    ),
    # --- the records
    "empty file": records("", "in.csv is empty"),
    "blank file": records("\n \n\n", "in.csv is empty"),
    "header only": records("x1,x2,y\n", "there are no records to aggregate"),
    "header without a newline": records("x1,x2,y", "there are no records to aggregate"),
    "label column only": records("y\n1\n0\n", "no feature is left"),
    "duplicate names": records(
        GOOD.replace("x2", "x1"), "in.csv: column 'x1' stands twice; rename one of them"
    ),
    "two columns without a name": records(",,y\n1,2,1\n2,2,0\n", "column '' stands twice"),
    "record too long": records(LONG, "in.csv: line 3 has 4 columns, and the header has 3"),
    "record too short": records(
        GOOD.replace("2,A,1", "2,A"), "in.csv: line 3 has 2 columns, and the header has 3"
    ),
    "open quote": records(GOOD.replace("2,A,1", '2,"A,1'), "in.csv: "),
    "wrong separator": records(
        GOOD,
        "columns are 'x1,x2,y'; is the separator wrong\\? say it with --separator",
        "--separator",
        ";",
    ),
    "two separators": records(GOOD, "--separator ';;' is not a single character", "--separator", ";;"),
    "an odd separator": records(GOOD.replace(",", "#"), "is not in the records, whose columns are 'x1#x2#y'"),
    "wrong encoding": records(
        GOOD.replace("A", "é").encode("latin-1"),
        "in.csv is not text in the encoding expected: say which, such as --encoding latin-1",
    ),
    "wrong encoding in the header": records(
        GOOD.replace("x1", "é").encode("latin-1"), "in.csv is not text in the encoding expected"
    ),
    "utf-16": records(GOOD.encode("utf-16"), "in.csv|label 'y' is not in the records"),
    "no such encoding": records(GOOD, "--encoding 'klingon' is no encoding of text", "--encoding", "klingon"),
    "binary as text": records(bytes(range(256)) * 8, "in.csv|label 'y' is not in the records"),
    "column without a value": records(
        "x1,x2,y\n1,,1\n2,NA,0\n", "column 'x2' has no value in any record: leave it out with --exclude"
    ),
    "text asked to be numeric": records(
        GOOD, "column 'x2' has no number in it: it cannot be numeric", "--numeric", "x2"
    ),
    "corrupt parquet": inputs("in.parquet", b"PAR1 this is not a Parquet file PAR1", "in.parquet: "),
    "truncated parquet": inputs("in.parquet", parquet_bytes(slice(0, 300)), "in.parquet: "),
    "scrambled parquet": inputs("in.parquet", scrambled_parquet(), "in.parquet"),
    "empty parquet": inputs("in.parquet", b"", "in.parquet"),
    "parquet without records": inputs(
        "in.parquet",
        parquet(x=pa.array([], pa.int64()), y=pa.array([], pa.int64())),
        "there are no records to aggregate",
    ),
    "corrupt gzip": inputs("in.csv.gz", b"\x1f\x8b\x08 not really", "in.csv.gz cannot be read|in.csv.gz: "),
    "truncated gzip": inputs(
        "in.csv.gz", gzip.compress((GOOD + "1,A,0\n" * 99_999).encode())[:-20], "in.csv.gz"
    ),
    "gzip that is none": inputs("in.csv.gz", GOOD, "in.csv.gz"),
    "corrupt zstd": inputs("in.csv.zst", b"nothing", "in.csv.zst"),
    "corrupt arrow": inputs("in.arrow", b"ARROW1\0\0 and then nothing", "in.arrow"),
    "empty arrow": inputs("in.arrow", b"", "in.arrow"),
    "nested column": inputs(
        "in.parquet",
        parquet(x=[[1], [2]], y=[0, 1]),
        "column 'x' has type list<.*>, which is neither a category nor a number: leave it out with --exclude",
    ),
    "binary column": inputs("in.parquet", parquet(x=[b"1", b"2"], y=[0, 1]), "column 'x' has type binary"),
    "nested label": inputs("in.parquet", parquet(x=[1, 2], y=[[0], [1]]), "column 'y' has type list"),
    "no such file": Case("nowhere.csv does not exist", args="aggregate nowhere.csv --label y -o out.agg"),
    "no such file in a glob": Case("no\\*.csv does not exist", args="aggregate no*.csv --label y -o out.agg"),
    "empty path": Case("empty", args="aggregate --label y -o out.agg", more=("",)),
    "path too long": Case("does not exist|too long", args=f"aggregate {'z' * 300}.csv --label y -o out.agg"),
    "dangling link": inputs("in.csv", lambda path: path.symlink_to("gone.csv"), "in.csv does not exist"),
    "link to itself": inputs("in.csv", lambda path: path.symlink_to("in.csv"), "in.csv"),
    "folder that looks like a file": inputs(
        "in.csv", lambda path: path.mkdir(), "folder in.csv holds no CSV, Parquet or Arrow file"
    ),
    "folder of other things": Case(
        "folder in holds no CSV",
        args="aggregate in --label y -o out.agg",
        files={"in/notes.md": "x", "in/_hidden.csv": GOOD, "in/.tmp/a.csv": GOOD},
    ),
    "unknown ending": inputs(
        "in.xlsx", b"PK", "in.xlsx: its ending does not tell what it is; csv, tsv, parquet and arrow are read"
    ),
    "no ending": inputs("records", GOOD, "records: its ending does not tell what it is"),
    "files with different columns": Case(
        "b.csv and a.csv have different columns: only one has 'x2', 'x3'",
        args="aggregate a.csv b.csv --label y -o out.agg",
        files={"a.csv": GOOD, "b.csv": GOOD.replace("x2", "x3")},
    ),
    "a bad file after good ones": Case(
        "b.csv: line 3 has 4 columns, and the header has 3",
        args="aggregate a.csv b.csv --label y -o out.agg",
        files={"a.csv": GOOD, "b.csv": LONG},
    ),
    "no such database": Case("in.duckdb does not exist", args="aggregate in.duckdb:t --label y -o out.agg"),
    "no such table": Case(
        "has no table 'v'", args="aggregate in.duckdb:v --label y -o out.agg", files={"in.duckdb": database}
    ),
    "which table": Case(
        "in.duckdb", args="aggregate in.duckdb --label y -o out.agg", files={"in.duckdb": database}
    ),
    "no records in the table": Case(
        "there are no records to aggregate|no value",
        args="aggregate in.duckdb:t --label y -o out.agg",
        files={"in.duckdb": database},
    ),
    "a database that is none": inputs("in.duckdb", b"not a database, certainly", "in.duckdb"),
    "split of a database": Case(
        "a lazy source has no record numbers to split by",
        args="aggregate in.duckdb:t --label y -o out.agg --split valid=0.5",
        files={"in.duckdb": database},
    ),
    # --- columns
    "no such feature": options("--features", "x1,x9", message="feature 'x9' is not in the records"),
    "a feature twice": options("--features", "x1,x1", message="'x1' stands twice"),
    "exclude nothing": options(
        "--exclude", "x9", message="--exclude 'x9' names no column: there are 'x1', 'x2', 'y'"
    ),
    "exclude everything": options("--exclude", "x*", message="no feature is left"),
    "categorical nothing": options("--categorical", "z*", message="--categorical 'z\\*' names no feature"),
    "numeric nothing": options("--numeric", "z", message="--numeric 'z' names no feature"),
    "numeric the label": options("--numeric", "y", message="--numeric 'y' names no feature"),
    "both kinds": options(
        "--numeric",
        "x1",
        "--categorical",
        "x*",
        message="column 'x1' is asked to be both categorical and numeric",
    ),
    "encode nothing": options(
        "--target-encode", "z", message="column to target-encode 'z' is not in the records"
    ),
    # --- options
    "one bin": options("--bins", "1", message="bins 1 is too few: 2 is the least"),
    "bins in words": options(
        "--bins", "ten", message="Invalid value for '--bins': .*\\(see agglearn aggregate --help\\)"
    ),
    "unknown binning": options("--binning", "foo", message="binning 'foo' is not quantile or width"),
    "edges without a column": options("--edges", "x", message="--edges 'x' is not COLUMN=NUMBER"),
    "edges in words": options("--edges", "x1=a,b", message="--edges 'x1=a,b' is not COLUMN=NUMBER"),
    "edges of nothing": options("--edges", "z=1,2", message="--edges 'z' names no feature"),
    "edges by pattern": options("--edges", "x*=1,2", message="--edges 'x\\*' names no feature"),
    "edges without end": options("--edges", "x1=1,inf", message="'x1': bin edges must be finite"),
    "edges of text": options("--edges", "x2=1,2", message="column 'x2' has no number in it"),
    "one modality": options("--max-modalities", "1", message="max-modalities 1 is too few"),
    "more modalities than codes": Case(
        "--max-modalities 2000000 is out of bounds: at most 999,998",
        args="aggregate in.csv --label y -o out.agg --max-modalities 2000000",
        files={"in.csv": "x,y\n" + "".join(f"v{i},{i % 2}\n" for i in range(70))},
    ),
    "a feature of more modalities than codes": Case(
        "feature 'x' has 1,000,001 modalities and the most is 1,000,000: fold the rare ones with",
        args="aggregate in.csv --label y -o out.agg --schema long.json",
        files={
            "in.csv": "x,y\nv1,1\n",
            "long.json": '{"features": [{"name": "x", "kind": "categorical", "missing": false, "values": ['
            + ",".join(f'"v{i}"' for i in range(1_000_001))
            + ']}], "labels": [{"name": "y"}]}',
        },
    ),
    "no modality count": options("--min-modality-count", "0", message="min-modality-count 0 is too few"),
    "one bucket": options("--hash-size", "1", message="hash-size 1 is too small"),
    "split without a name": options(
        "--split", "0.2", message="split '0.2' is not NAME=SHARE, such as valid=0.2"
    ),
    "split of all": options("--split", "valid=2", message="split part valid=2 must be between 0 and 1"),
    "split of nothing": options("--split", "valid=0", message="split part valid=0 must be between 0 and 1"),
    "split that leaves nothing": options("--split", "a=0.6,b=0.4", message="leave nothing to train on"),
    "split into train": options("--split", "train=0.2", message="split part 'train' needs a plain name"),
    "split into a path": options("--split", "../x=0.2", message="split part '../x' needs a plain name"),
    "split of few records": options(
        "--split", "valid=0.0001", message="no record fell into part 'valid' of the split"
    ),
    "encoding share too large": options(
        "--target-encode", "x2", "--encoding-share", "1", message="held out for target encoding \\(1\\)"
    ),
    "encoding share of nothing": options(
        "--target-encode", "x2", "--encoding-share", "0", message="held out for target encoding \\(0\\)"
    ),
    "one encoding modality": options(
        "--target-encode", "x2", "--encoding-modalities", "1", message="encoding-modalities 1 is too few"
    ),
    "no such table of features": options(
        "--tables", "x1*nope", message="no feature is called 'nope': there are 'x1', 'x2'"
    ),
    "table of one feature twice": options("--tables", "x1*x1", message="names a feature twice"),
    "unknown word for tables": options("--tables", "quads", message="no feature is called 'quads'"),
    "no tables": options("--tables", "", message="no feature is called ''|no table"),
    "unknown option": options("--frobnicate", message="No such option: --frobnicate"),
    "unknown verb": Case("No such command 'agregate'", args="agregate in.csv"),
    "no input": Case("Missing argument 'INPUT...'", args="aggregate --label y -o out.agg"),
    "no output": Case("Missing option '--output'", args="aggregate in.csv --label y", files={"in.csv": GOOD}),
    "memory that is no size": Case(
        "AGGLEARN_MEMORY='lots' is not a size: write one like 8GiB or 500MB",
        files={"in.csv": GOOD},
        environment={"AGGLEARN_MEMORY": "lots"},
    ),
    "a pair of a billion cells": Case(
        "32,000 cells \\(the largest table is a × b with 32,000\\) would need 1000.0 KiB of "
        "memory, and 400.0 KiB may be used: fold rare values with --max-modalities, hash cells with "
        "--hash-size, or leave features out",
        args="aggregate in.csv --label y -o out.agg --min-modality-count 1 --categorical a,b",
        files={"in.csv": "a,b,y\n" + "".join(f"{i},{i},{i % 2}\n" for i in range(32_000))},
        environment={"AGGLEARN_MEMORY": "400KiB"},
    ),
    # --- schemas
    "no such schema": options("--schema", "none.json", message="none.json does not exist"),
    "schema that is no JSON": Case(
        "s.json is not JSON", files={"in.csv": GOOD, "s.json": "{"}, more=("--schema", "s.json")
    ),
    "schema that is none": Case(
        "s.json: not a schema", files={"in.csv": GOOD, "s.json": '{"a": 1}'}, more=("--schema", "s.json")
    ),
    "schema in a folder that is none": Case(
        "s.agg is not a folder of agglearn.tables",
        files={"in.csv": GOOD, "s.agg/x": ""},
        more=("--schema", "s.agg"),
    ),
    "schema of other records": Case(
        "column 'x1' is not in the records|'x1'",
        files={"in.csv": GOOD.replace("x1", "x7"), "s.agg": make_tables},
        more=("--schema", "s.agg"),
    ),
    "schema with the label as a feature": Case(
        "column 'x2' stands twice",
        args="aggregate in.csv --label x2 -o out.agg --positive A",
        files={"in.csv": GOOD, "s.agg": make_tables},
        more=("--schema", "s.agg"),
    ),
    "encoding beside a schema": Case(
        "target encodings are part of a schema",
        files={"in.csv": GOOD, "s.agg": make_tables},
        more=("--schema", "s.agg", "--target-encode", "x1"),
    ),
    # --- outputs
    "output without its ending": outputs("out", "output 'out' must end in .agg"),
    "output of another ending": outputs("out.parquet", "output 'out.parquet' must end in .agg"),
    "output is the ending alone": outputs(".agg", "output '.agg' must end in .agg|needs a name"),
    "output is someone's folder": outputs(
        "mine.agg",
        "mine.agg exists and is not ours to overwrite: remove it or name another output",
        **{"mine.agg/thesis.tex": "precious"},
    ),
    "output is a file": outputs(
        "mine.agg", "mine.agg exists and is not ours to overwrite", **{"mine.agg": "precious"}
    ),
    "output below a file": outputs("in.csv/out.agg", "cannot write there \\(Not a directory\\)"),
    "output where nobody may write": outputs("/proc/out.agg", "/proc/out.agg: cannot write there"),
    "output too long": outputs("o" * 300 + ".agg", "cannot write there \\(File name too long\\)"),
    "a part of the split is someone's": Case(
        "out.valid.agg exists and is not ours to overwrite",
        files={"in.csv": GOOD, "out.valid.agg": "precious"},
        more=("--split", "valid=0.4"),
    ),
    # --- check and merge
    "check nothing": Case("no.agg does not exist", args="check no.agg"),
    "check a file": Case("in.csv is not a folder", args="check in.csv", files={"in.csv": GOOD}),
    "merge other schemas": Case(
        "different schemas cannot be merged",
        args="merge a.agg b.agg -o out.agg",
        files={"a.agg": make_tables, "b.agg": lambda path: make_other_tables(path)},
    ),
    "merge one that is gone": Case(
        "b.agg does not exist", args="merge a.agg b.agg -o out.agg", files={"a.agg": make_tables}
    ),
    "merge to nowhere": Case(
        "must end in .agg", args="merge a.agg a.agg -o out", files={"a.agg": make_tables}
    ),
}


def make_other_tables(path: Path) -> None:
    from agglearn.aggregation.api import aggregate
    from agglearn.tables.format import save

    save(aggregate({"x1": [1, 2, 3], "x2": ["B", "C", "C"], "y": [0, 1, 1]}, "y"), path)


def lay_out(files: dict[str, str | bytes | Callable[[Path], object]]) -> None:
    for name, content in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(path)
        elif isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            path.write_bytes(content)


def listing() -> dict[str, bytes | None]:
    return {
        os.path.join(folder, name): Path(folder, name).read_bytes() if Path(folder, name).is_file() else None
        for folder, folders, files in os.walk(".")
        for name in [*folders, *files]
    }


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_one_line_and_leaves_nothing(
    name: str, run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    monkeypatch.chdir(tmp_path)
    for key, value in case.environment.items():
        monkeypatch.setenv(key, value)
    lay_out(case.files)
    before = listing()
    run = run_cli(*case.words)
    assert run.code == 2, run.err
    assert re.fullmatch(f"agglearn: .*({case.message}).*\n", run.err), run.err
    assert run.err.count("\n") == 1
    assert run.out == ""
    assert listing() == before, "something was left behind"


@pytest.mark.parametrize(
    "name", ["no such label", "corrupt parquet", "a pair of a billion cells", "output below a file"]
)
def test_a_mistake_looks_the_same_from_a_shell(
    name: str, run_process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    monkeypatch.chdir(tmp_path)
    lay_out(case.files)
    run = run_process(*case.words, **case.environment)
    assert run.code == 2
    assert re.fullmatch(f"agglearn: .*({case.message}).*\n", run.err), run.err
    assert run.out == ""


# --- what must work --------------------------------------------------------------------------------


ODD_NAMES = [
    " leading", "two words", "quo\"te", "apostrophe's", "semi;colon", "tab\there", "new\nline", "ünïcødé",
    "日本", "😀", "select", "GROUP BY", "count", "bucket", "null", "NaN", "1", "", "x" * 300, "--label",
    "a.b", "a*b", "[x]", "{y}", "%s", "back\\slash", "a/b", "../..", "=1+1",
]  # fmt: skip


def test_odd_column_names_are_as_good_as_any(run_cli: Any, tmp_path: Path) -> None:
    import csv

    path = tmp_path / "in.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*ODD_NAMES, "the label"])
        for i in range(20):
            writer.writerow([f"v{(i * k) % 3}" for k in range(len(ODD_NAMES))] + [i % 2])
    run = run_cli("aggregate", path, "--label", "the label", "-o", tmp_path / "out.agg", "--json")
    assert (run.code, run.err) == (0, "")
    assert [c["name"] for c in run.json["columns"]] == ODD_NAMES
    run = run_cli("check", tmp_path / "out.agg", "--json")
    assert run.code == 0
    assert run.json["rows"] == 20
    # The same from Parquet.
    from agglearn.aggregation.api import aggregate
    from agglearn.records import sources
    from agglearn.tables.format import load

    table = sources.open_source(path)
    pq.write_table(pa.Table.from_batches(table.batches(table.columns)), tmp_path / "in.parquet")
    assert aggregate(tmp_path / "in.parquet", "the label").equals(load(tmp_path / "out.agg"))


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("\ufeff" + GOOD, ()),
        (GOOD.replace("\n", "\r\n"), ()),
        (GOOD.replace("\n", "\r"), ()),
        (GOOD.rstrip("\n"), ()),
        ("\n\n" + GOOD, ()),
        (GOOD + "\n\n", ()),
        (GOOD.replace(",", ";"), ()),
        (GOOD.replace(",", "|"), ()),
        (GOOD.replace(",", "\t"), ()),
        (GOOD.replace(",", "#"), ("--separator", "#")),
        (GOOD.replace(",", "\t"), ("--separator", "tab")),
        (re.sub(r"([^,\n]+)", r'"\1"', GOOD), ()),
        (GOOD.replace(",1\n", ",true\n").replace(",0\n", ",False\n"), ()),
        (GOOD.replace(",1\n", ", 1\n"), ()),
        (GOOD.replace(",1\n", ",yes\n").replace(",0\n", ",no\n"), ("--positive", "yes")),
        (GOOD.encode("utf-16"), ("--encoding", "utf-16")),
        (GOOD.replace("x2", "é").encode("latin-1"), ("--encoding", "latin-1")),
    ],
    ids=["byte order mark", "CRLF", "CR", "no last newline", "blank lines first", "blank lines last",
         "semicolons", "bars", "tabs", "hashes", "tab in words", "quoted", "true and false", "spaces",
         "yes and no", "utf-16", "latin-1"],
)  # fmt: skip
def test_text_files_of_many_habits_are_read(
    text: str | bytes, more: tuple[str, ...], run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lay_out({"in.csv": text})
    run = run_cli("aggregate", "in.csv", "--label", "y", "-o", "out.agg", "--json", *more)
    assert run.code == 0, run.err
    assert run.json["parts"]["train"]["positives"] == {"y": 3}
    assert (run.json["rows"], run.json["cells"]) == (5, 4)


def test_values_with_newlines_and_quotes_are_kept_whole(run_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('x,y\n"a\nb",1\n"say ""hi""",0\n"c,d",0\n')
    run = run_cli("aggregate", tmp_path / "in.csv", "--label", "y", "-o", tmp_path / "out.agg")
    assert run.code == 0
    from agglearn.tables.format import load

    assert load(tmp_path / "out.agg").schema.features[0].modalities == ("a\nb", "c,d", 'say "hi"')


def test_what_means_missing_can_be_said(run_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x,y\n?,1\nNA,0\n,0\na,1\n")
    run = run_cli(
        "aggregate",
        tmp_path / "in.csv",
        "--label",
        "y",
        "-o",
        tmp_path / "out.agg",
        "--missing",
        "?",
        "--json",
    )
    (column,) = run.json["columns"]
    assert (column["missing"], column["modalities"]) == (2, 3)


def test_a_number_column_with_some_text_works_when_told(run_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(100)) + "oops,1\n")
    run = run_cli(
        "aggregate",
        tmp_path / "in.csv",
        "--label",
        "y",
        "-o",
        tmp_path / "out.agg",
        "--numeric",
        "x",
        "--json",
    )
    assert run.code == 0
    assert run.json["unknown"] == {"x": 1}
    assert "1 values are not numbers and count as unknown" in run.json["columns"][0]["why"]
