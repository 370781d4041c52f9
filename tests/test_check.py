"""What a check says of tables that are right, wrong or noisy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from agglearn.aggregation.api import aggregate
from agglearn.receive import receive_tables
from agglearn.tables.check import CheckReport, check
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import save
from agglearn.tables.noise import Noise
from agglearn.tables.table import Table
from tests.fields import with_noise

Make = Callable[..., AggregatedData]
FIRST = ("f0", "f1")


def change(data: AggregatedData, scope: tuple[str, ...] = FIRST, **numbers: Any) -> AggregatedData:
    """The data with some numbers of one table changed: ``{cell: number}`` for counts or sums."""
    table = data.tables[scope]
    counts, sums = table.counts.copy(), table.sums.copy()
    for cell, number in numbers.pop("counts", {}).items():
        counts[cell] = number
    for cell, number in numbers.pop("sums", {}).items():
        sums[cell] = number
    table = replace(table, counts=counts, sums=sums, **numbers)
    return replace(data, tables={**data.tables, scope: table})


def every_table(data: AggregatedData, edit: Callable[[Table], Table]) -> AggregatedData:
    return replace(data, tables={scope: edit(t) for scope, t in data.tables.items()})


def kinds(report: CheckReport) -> set[str]:
    return {p.kind for p in report.problems}


def noted(report: CheckReport) -> set[str]:
    return {n.kind for n in report.notes}


def test_tables_of_real_records_agree(random_tables: Make) -> None:
    report = check(random_tables())
    assert report.ok
    assert (report.problems, report.notes) == ([], [])
    assert (report.tables, report.cells, report.rows) == (3, 12 + 6 + 8, 500)
    assert report.noise_implied == 0
    assert report.noise_declared is None
    assert [(f["name"], f["modalities"], f["seen"]) for f in report.features] == [
        ("f0", 3, 3),
        ("f1", 4, 4),
        ("f2", 2, 2),
    ]


def test_negative_counts_are_found_with_their_place(random_tables: Make) -> None:
    report = check(change(random_tables(), counts={(1, 2): -3}, sums={(0, 1, 2): 0}))
    (problem,) = [p for p in report.problems if p.kind == "negative count"]
    assert problem.table == "f0 × f1"
    assert "1 cells are negative, the first at (v1, v2): declare the noise" in problem.message
    report = check(change(random_tables(), sums={(0, 0, 0): -1}))
    assert "negative count" in kinds(report)


def test_more_positives_than_records_are_found_with_their_place(random_tables: Make) -> None:
    data = random_tables()
    report = check(change(data, sums={(0, 2, 3): data.tables[FIRST].counts[2, 3] + 1}))
    (problem,) = [p for p in report.problems if p.kind == "sum above count"]
    assert "1 cells have more positives than records, the first at (v2, v3)" in problem.message


def test_a_table_with_another_total_is_found(random_tables: Make) -> None:
    data = random_tables()
    report = check(
        every_table(
            data, lambda t: replace(t, counts=t.counts * 2, sums=t.sums * 2) if t.features == FIRST else t
        )
    )
    (problem,) = [p for p in report.problems if p.kind == "total"]
    assert problem.message == "table f0 × f1 counts 1,000 records, and the data have 500"


def test_margins_that_disagree_are_found_with_the_value(random_tables: Make) -> None:
    data = random_tables()
    counts = data.tables[FIRST].counts
    # Ten records move from one value of f0 to another: totals stay right, the margin does not.
    report = check(change(data, counts={(0, 1): counts[0, 1] + 10, (2, 1): counts[2, 1] - 10}))
    assert kinds(report) == {"margin"}
    (problem,) = report.problems
    assert "disagree on f0 = v0 by 10" in problem.message
    assert report.noise_implied is not None
    assert report.noise_implied > 0


def test_sums_that_disagree_are_found_too(random_tables: Make) -> None:
    data = random_tables()
    sums = data.tables[FIRST].sums
    report = check(change(data, sums={(0, 0, 1): sums[0, 0, 1] + 2, (0, 2, 1): sums[0, 2, 1] - 2}))
    assert kinds(report) == {"margin"}


@pytest.mark.parametrize(("law", "scale", "sigma"), [("gaussian", 17, 17), ("laplace", 5, 5 * 2**0.5)])
def test_the_noise_that_margins_imply_is_near_the_true_one(
    random_tables: Make, law: str, scale: float, sigma: float
) -> None:
    data = random_tables(cards=(20, 15, 12, 10, 8), rows=20_000)
    undeclared = check(with_noise(data, law, scale, None))
    # (4 margins - 1) × 65 values × 2 numbers make 390 squares: a relative error of 1/√780 = 3.6 %, more
    # for Laplace (kurtosis 6: sums of a dozen cells are nearly Gaussian); four of those.
    assert undeclared.noise_implied == pytest.approx(sigma, rel=0.15)
    assert not undeclared.ok
    assert "margin" in kinds(undeclared)
    declared = check(with_noise(data, law, scale, scale))
    assert declared.ok, declared.problems
    assert declared.noise_declared == pytest.approx(sigma)
    assert declared.noise_implied == undeclared.noise_implied


@pytest.mark.parametrize("seed", range(20))
def test_the_right_declaration_is_never_doubted(random_tables: Make, seed: int) -> None:
    data = random_tables(cards=(20, 15, 12, 10), rows=5000)
    assert check(with_noise(data, "gaussian", 10, 10, seed)).ok
    assert check(with_noise(data, "laplace", 10, 10, seed)).ok


@pytest.mark.parametrize("declared", [5, 40])
def test_a_wrong_declaration_is_found(random_tables: Make, declared: float) -> None:
    data = random_tables(cards=(20, 15, 12, 10), rows=20_000)
    report = check(with_noise(data, "gaussian", 17, declared))
    assert "noise" in kinds(report)
    (problem,) = [p for p in report.problems if p.kind == "noise"]
    assert f"and {declared} is declared" in problem.message


def test_noise_excuses_negative_counts_but_not_what_is_no_number(random_tables: Make) -> None:
    data = with_noise(random_tables(rows=20), "gaussian", 5, 5)
    assert any((t.counts < 0).any() for t in data.tables.values())
    assert "negative count" not in kinds(check(data))
    report = check(change(data, counts={(0, 0): np.nan}))
    (problem,) = [p for p in report.problems if p.kind == "not a number"]
    assert problem.message == "table f0 × f1: some numbers are missing or infinite"


def test_withheld_cells_are_no_disagreement(random_tables: Make) -> None:
    def suppress(table: Table) -> Table:
        kept = table.counts >= 45
        return replace(table, counts=table.counts * kept, sums=table.sums * kept, measured=kept)

    data = every_table(random_tables(), suppress)
    assert any(t.measured is not None and not t.measured.all() for t in data.tables.values())
    assert check(replace(data, absent="suppressed", floor=45)).ok


def test_unknown_values_are_no_disagreement(random_tables: Make) -> None:
    rng = np.random.default_rng(0)
    schema = aggregate({"a": ["p", "q"], "b": ["r", "s"], "c": ["t", "u"], "y": [0, 1]}, "y").schema
    table = pa.table(
        {
            "a": rng.choice(["p", "q", "?"], 900),
            "b": rng.choice(["r", "s", "?", "!"], 900),
            "c": rng.choice(["t", "u"], 900),
            "y": rng.integers(0, 2, 900),
        }
    )
    report = check(aggregate(table, "y", schema=schema))
    assert report.ok
    assert report.unknown > 500
    assert report.noise_implied in (0, None), "gaps of unknown values were taken for noise"


def test_pairs_that_no_table_holds_are_noted(random_tables: Make) -> None:
    report = check(random_tables().select(tables=[("f0", "f1"), ("f1", "f2")]))
    assert report.ok
    (note,) = report.notes
    assert note.message == "1 pairs of features are in no table, the first f0 × f2"


def test_singles_alone_are_noted() -> None:
    data = aggregate({"a": ["p", "q"] * 5, "b": ["r", "s"] * 5, "y": [0, 1] * 5}, "y", tables="singles")
    (note,) = check(data).notes
    assert note.message == "no pair of features is in any table: only a Naive Bayes can be learnt"


def test_a_feature_that_is_in_no_table_is_noted(random_tables: Make) -> None:
    report = check(random_tables().select(tables=[("f0", "f1")]))
    assert noted(report) == {"absent pair", "absent feature"}
    assert any("feature f2 is in no table" in n.message for n in report.notes)


def test_a_feature_with_one_value_is_noted() -> None:
    data = aggregate({"a": ["p"] * 6, "b": ["r", "s"] * 3, "y": [0, 1] * 3}, "y")
    report = check(data)
    assert report.ok
    (note,) = report.notes
    assert note.message == "feature a has one value only: it tells nothing"


@pytest.mark.parametrize(("value", "word"), [(0, "negative"), (1, "positive")])
def test_a_label_that_never_varies_is_a_problem(value: int, word: str) -> None:
    report = check(aggregate({"a": ["p", "q"], "b": ["r", "s"], "y": [value] * 2}, "y"))
    (problem,) = report.problems
    assert problem.message == f"label y: every record is {word}, so there is nothing to learn"


def test_hashed_tables_are_checked_for_what_they_can_be(random_tables: Make) -> None:
    data = aggregate(
        {"a": [f"v{i % 7}" for i in range(99)], "b": [i % 5 for i in range(99)], "y": [0, 1, 1] * 33},
        "y",
        hash_size=10,
    )
    assert check(data).ok
    report = check(change(data, ("a", "b"), counts={3: -1}, sums={(0, 3): 0}))
    assert "the first at bucket 3" in report.problems[0].message


# --- the command -----------------------------------------------------------------------------------


def test_the_command_says_the_same_in_json(random_tables: Make, run_cli: Any, tmp_path: Path) -> None:
    save(random_tables(), tmp_path / "good.agg")
    run = run_cli("check", tmp_path / "good.agg", "--json")
    assert (run.code, run.err) == (0, "")
    assert {"ok", "tables", "cells", "rows", "problems"} <= run.json.keys()
    assert (run.json["ok"], run.json["tables"], run.json["cells"], run.json["rows"]) == (True, 3, 26, 500)
    assert run.json["problems"] == []


def test_the_command_fails_on_tables_that_do_not_agree(
    random_tables: Make, run_cli: Any, tmp_path: Path
) -> None:
    save(change(random_tables(), counts={(0, 0): 400}), tmp_path / "bad.agg")
    run = run_cli("check", tmp_path / "bad.agg", "--json")
    assert run.code == 2
    assert run.json["ok"] is False
    assert {p["kind"] for p in run.json["problems"]} == {"total", "margin"}
    run = run_cli("check", tmp_path / "bad.agg")
    assert run.code == 2
    assert "PROBLEM: table f0 × f1 counts" in run.out
    assert "problems found" in run.out


def test_the_command_tells_a_person_what_there_is(random_tables: Make, run_cli: Any, tmp_path: Path) -> None:
    data = random_tables(labels=("click", "sale"))
    save(data, tmp_path / "x.agg")
    run = run_cli("check", tmp_path / "x.agg")
    clicks, sales = data.positives
    assert f"3 tables, 26 cells, 500 records ({clicks} click, {sales} sale)" in run.out
    assert "  feature  kind         modalities  seen\n" in run.out
    assert "  f1       categorical           4     4\n" in run.out
    assert "these tables agree" in run.out


def test_infinite_numbers_are_told_in_json_that_can_be_read(
    random_tables: Make, run_cli: Any, tmp_path: Path
) -> None:
    data = with_noise(random_tables(), "gaussian", 5, 5)
    save(change(data, counts={(0, 0): np.inf}), tmp_path / "x.agg")
    run = run_cli("check", tmp_path / "x.agg", "--json")
    assert run.code == 2  # already when it is read
    assert "column 'count' must be finite numbers" in run.err


def _received(tmp_path: Path, select: str, having: str = "", **declared: Any) -> AggregatedData:
    """All singles and pairs of some records, as a database gives them."""
    rng = np.random.default_rng(0)
    records = {"a": rng.integers(0, 3, 3000), "b": rng.exponential(5, 3000).astype(int)}
    records |= {"c": rng.integers(0, 12, 3000), "y": (rng.random(3000) < 0.2).astype(int)}
    connection = duckdb.connect()
    connection.register("records", pa.table(records))
    for scope in ("a", "b", "c", "a, b", "a, c", "b, c"):
        query = f"SELECT {scope}, {select} FROM records GROUP BY {scope} {having}"
        connection.sql(query).write_csv(str(tmp_path / f"{scope}.csv"))
    return receive_tables(tmp_path, label="y", **declared)


_PLAIN = "COUNT(*) AS count, SUM(y) AS y"
_ROUNDED = "ROUND(COUNT(*) / 5.0) * 5 AS count, ROUND(SUM(y) / 5.0) * 5 AS y"


def test_tables_with_cells_withheld_agree_where_that_is_declared(tmp_path: Path) -> None:
    found = check(_received(tmp_path, _PLAIN, "HAVING COUNT(*) >= 10", floor=10))
    assert found.ok, found
    assert found.rows == 3000


def test_withheld_cells_that_are_not_declared_are_one_line_with_the_remedy(tmp_path: Path) -> None:
    found = check(_received(tmp_path, _PLAIN, "HAVING COUNT(*) >= 10"))
    lines = [note for note in found.document().notes if note.severity == "problem"]
    assert len(lines) == 2 < len(found.problems)  # totals, and margins
    assert all("no cell has fewer than 10 records" in line.text for line in lines)
    assert all("say so with floor=10" in line.text for line in lines)


def test_rounded_tables_agree_where_that_is_declared(tmp_path: Path) -> None:
    """Most cells of b × c hold one or two records, which are all rounded the same way: to none."""
    found = check(_received(tmp_path, _ROUNDED, noise=Noise.parse("rounding-to:5")))
    assert found.ok, found


def test_rounding_that_is_not_declared_is_told_by_its_step(tmp_path: Path) -> None:
    found = check(_received(tmp_path, _ROUNDED))
    assert not found.ok
    assert "receive them with noise=rounding-to:5" in str(found)


def test_rounding_to_a_step_has_half_of_it_as_its_largest_error() -> None:
    assert Noise.parse("rounding-to:5") == Noise("rounding", 2.5)
