"""An error says in which file and on which line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import agglearn
from agglearn.errors import InputError


def test_a_line_is_counted_as_an_editor_counts_it(tmp_path: Path) -> None:
    text = '\nx,y\n"two\nlines",1\n\na,0\nb,\n'  # the record without a label is on the seventh line
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=r"'y' is missing in record 3 of .*t\.csv \(line 7\)"):
        agglearn.aggregate(tmp_path / "t.csv", "y")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(InputError, match=r"record 3 of .*t\.csv\.gz \(line 7\)"):
        agglearn.aggregate(tmp_path / "t.csv.gz", "y")


def test_the_second_file_is_named_and_counted_by_itself(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + "a,1\nb,0\n" * 50)
    (tmp_path / "b.csv").write_text("x,y\na,1\nb,maybe\n")
    with pytest.raises(InputError, match=r"the value 'maybe' in record 2 of .*b\.csv \(line 3\)"):
        agglearn.aggregate([tmp_path / "a.csv", tmp_path / "b.csv"], "y")


def test_a_parquet_file_has_records_and_no_lines(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": ["a", "b"], "y": [1, None]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"missing in record 2 of .*t\.parquet:"):
        agglearn.aggregate(tmp_path / "t.parquet", "y")


def test_a_frame_has_records(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing in record 2:"):
        agglearn.aggregate({"x": ["a", "b"], "y": [1, None]}, "y")


def test_a_ragged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\na,1\nb,0,7\n")
    with pytest.raises(InputError, match=r"t\.csv: line 3 has 3 columns, and the header has 2"):
        agglearn.aggregate(tmp_path / "t.csv", "y")
