"""Private tables as a data holder makes them: what leaves, what is public, what is written down as spent."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from agglearn import plan
from agglearn.aggregation.api import aggregate
from agglearn.aggregation.options import AggregateOptions
from agglearn.errors import InputError, MissingExtraError, SchemaError, StoreError, TableError
from agglearn.privacy import learn
from agglearn.privacy.api import aggregate_private, release_tables
from agglearn.privacy.budget import PrivacyOptions
from agglearn.privacy.choices import choices_of, coarser
from agglearn.privacy.coarse import Coarsening, coarsened
from agglearn.privacy.learn import consistent
from agglearn.privacy.ledger import Ledger, ledger_beside, total_of
from agglearn.privacy.persons import chosen
from agglearn.privacy.release import simulate
from agglearn.tables.check import check
from agglearn.tables.data import AggregatedData, merge
from agglearn.tables.format import load, save, save_schema
from agglearn.tables.promise import Promise, Spending
from agglearn.train.settings import FitSettings
from tests.records import make_records

BUDGET = ("--epsilon", "1", "--delta", "1e-6")
FILE = ("--label", "bought", "--positive", "yes", "--exclude", "id")
ASSUMED = PrivacyOptions(epsilon=1.0, delta=1e-6, assume_public_schema=True)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """4,321 records in a file, and a public schema of them, in a folder where we stand."""
    monkeypatch.chdir(tmp_path)
    records = make_records(4321)
    pacsv.write_csv(records, "shop.csv")
    public = aggregate(make_records(500, seed=9), "bought", positive="yes", exclude=["id"], bins=5).schema
    save_schema(public, "public.json")
    return tmp_path


def exact(rows: int = 2000, **options: Any) -> AggregatedData:
    usual: dict[str, Any] = {"exclude": ["id"], "bins": 5} if "schema" not in options else {}
    return aggregate(make_records(rows), "bought", positive="yes", **usual, **options)


def written() -> set[str]:
    return {path.name for path in Path().iterdir()}


# --- nothing exact leaves --------------------------------------------------------------------------


def numbers_in(folder: Path) -> Iterator[float]:
    """Every number in a folder, be it in JSON or in Parquet."""

    def walk(value: Any) -> Iterator[float]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                yield from walk(item)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield float(value)

    for path in folder.rglob("*"):
        if path.suffix == ".json":
            yield from walk(json.loads(path.read_text()))
        elif path.suffix == ".parquet":
            table = pq.read_table(path)
            for column in table.itercolumns():
                if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
                    yield from column.to_pylist()


def test_no_exact_figure_is_in_what_is_written(shop: Path, run_cli: Any) -> None:
    assert run_cli("aggregate", "shop.csv", *FILE[:4], "--schema", "public.json", "-o", "exact.agg").code == 0
    done = run_cli("aggregate", "shop.csv", *FILE, "--public", "public.json", "-o", "p.agg", *BUDGET)
    assert done.code == 0
    true = load("exact.agg")
    told = {true.rows, *true.positives, true.rows - true.positives[0]}
    for table in true.tables.values():
        told |= {float(table.counts.sum()), float(table.sums.sum())}
    assert 4321 in told
    assert told & set(numbers_in(Path("exact.agg")))  # where they can be found
    assert not told & set(numbers_in(Path("p.agg")))
    for path in Path("p.agg").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            # neither 4321.25, which is a noisy one, nor a digit of a checksum
            assert not re.search(rb"(?<![0-9a-f.])4321(?![0-9a-f.])", data)
            assert b"shop.csv" not in data
            assert b"seed" not in data
    # Every cell is there, so that nobody can tell which had records.
    for scope, table in load("p.agg").tables.items():
        assert (
            pq.read_table(next(Path("p.agg/tables").glob(f"*{'-'.join(scope)}*"))).num_rows == table.n_cells
        )


def test_the_parts_of_a_private_split_do_not_tell_how_it_was_made(shop: Path, run_cli: Any) -> None:
    command = ("aggregate", "shop.csv", *FILE, "--public", "public.json", *BUDGET, "--split", "valid=0.3")
    assert run_cli(*command, "-o", "p.agg").code == 0
    train, valid = load("p.agg"), load("p.valid.agg")
    assert train.split == {"part": "train", "shares": {"valid": 0.3}}
    assert train.promise == valid.promise
    # σ of a total is about 24, and a split of 4,321 records has its own spread of 30
    assert train.rows + valid.rows == pytest.approx(4321, abs=180)
    assert valid.rows == pytest.approx(0.3 * 4321, abs=200)
    assert len(Ledger.read("shop.csv.ledger.jsonl").promises) == 1  # a record is in one part only
    whole = merge([train, valid])
    assert whole.promise is not None
    assert whole.promise.epsilon == 1.0


def test_the_promise_is_in_the_file_and_check_shows_it(shop: Path, run_cli: Any) -> None:
    command = ("aggregate", "shop.csv", *FILE, "--assume-public-schema", *BUDGET, "-o", "p.agg")
    run = run_cli(*command, "--json")
    assert run.code == 0
    data = load("p.agg")
    assert data.promise is not None
    assert run.json["privacy"] == data.promise.to_json() | {"releases": list(data.promise.releases)} | {
        "spent": [vars(s) for s in data.promise.spent]
    }
    assert data.promise.schema == "assumed public"
    assert data.promise.unit == "record"
    assert "OpenDP" in data.promise.accounting
    [spending] = data.promise.spent
    assert (spending.mechanism, spending.moved, spending.by) == ("gaussian", 3, 1)
    shown = run_cli("check", "p.agg")
    assert shown.code == 0
    assert "private: ε = 1, δ = 1e-06 for one record if vocabularies and bins are public" in shown.out
    assert "only assumed to be public" in shown.out


# --- what is public --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "column 'colour': its values would be learnt from the records"),
        (("--categorical", "colour,size"), "column 'age': its values would be learnt"),
        (("--categorical", "colour,size", "--numeric", "age"), "column 'age': its least and greatest value"),
        (("--schema", "public.json"), "--schema does not say that the schema is public"),
        (("--assume-public-schema", "--public", "public.json"), "has nothing to assume"),
        (("--public", "public.json", "--target-encode", "colour"), "column 'colour': a target encoding"),
        (("--public", "public.json", "--min-count", "5"), "--min-count looks at the true counts"),
        (("--public", "public.json", "--max-records", "2"), "--max-records needs --person"),
        (("--bounds", "age=90,20"), "not in order"),
        (("--bounds", "age=20"), "is not COLUMN=LOW,HIGH"),
    ],
)
def test_what_is_not_public_is_refused_by_name(
    shop: Path, run_cli: Any, options: tuple[str, ...], message: str
) -> None:
    categorical = () if "--categorical" in options or "public.json" in options else ("--categorical", "size")
    before = written()
    if "--bounds" in options:
        categorical = ("--categorical", "colour,size")
    elif not options:
        categorical = ()
    run = run_cli("aggregate", "shop.csv", *FILE, *BUDGET, "-o", "p.agg", *options, *categorical)
    assert run.code == 2
    assert message in run.err
    assert len(run.err.splitlines()) == 1
    assert written() == before


def test_exact_tables_are_made_private_only_with_a_public_schema(shop: Path, run_cli: Any) -> None:
    run_cli("aggregate", "shop.csv", *FILE, "-o", "learnt.agg")
    run_cli("aggregate", "shop.csv", *FILE[:4], "--schema", "public.json", "-o", "given.agg")
    before = written()
    for arguments, message in [
        (("learnt.agg",), "column 'colour': its values or bins may have been learnt"),
        (("learnt.agg", "--public", "public.json"), "column 'age' is coded in the tables otherwise"),
    ]:
        run = run_cli("noise", *arguments, *BUDGET, "-o", "p.agg")
        assert run.code == 2
        assert message in run.err
    assert written() == before
    assert run_cli("noise", "given.agg", "--public", "public.json", *BUDGET, "-o", "p.agg").code == 0
    assert run_cli("noise", "learnt.agg", "--assume-public-schema", *BUDGET, "-o", "q.agg").code == 0
    promises = [load(name).promise for name in ("p.agg", "q.agg")]
    assert [p and p.schema for p in promises] == ["public", "assumed public"]


def test_bins_and_values_are_paid_for_out_of_the_same_budget(shop: Path, run_cli: Any) -> None:
    options = (
        "--bounds",
        "age=0,100",
        "--categorical",
        "colour,size",
        "--bins",
        "5",
        "--schema-share",
        "0.2",
    )
    run = run_cli(
        "aggregate", "shop.csv", *FILE, "--epsilon", "4", "--delta", "1e-6", *options, "-o", "p.agg"
    )
    assert run.code == 0
    data = load("p.agg")
    assert data.promise is not None
    assert (data.promise.schema, data.promise.epsilon) == ("paid for", 4.0)
    columns, tables = data.promise.spent
    assert columns.share == 0.2
    assert columns.delta == pytest.approx(2e-7)
    assert columns.moved == 7 + 2  # a number a level of 128 ages, and a value in each of two columns
    of_all = [(s.sensitivity / s.scale) ** 2 for s in (columns, tables)]
    assert of_all[0] / sum(of_all) == pytest.approx(0.2)
    # Ages are even from 18 to 79. Ranks are off by some ten levels' noise of σ ≈ 10 in 4,321: a year or so.
    cuts = [cut.value for cut in data.schema.feature("age").rule.cuts]  # type: ignore[union-attr]
    np.testing.assert_allclose(
        cuts, np.quantile(make_records(4321)["age"].to_numpy(), [0.2, 0.4, 0.6, 0.8]), atol=4
    )
    assert set(data.schema.feature("colour").modalities) == {"blue", "green", "red", "(other)", "(missing)"}
    assert "paid for" in run.out


def test_a_value_that_few_have_is_not_named() -> None:
    counts = {"common": 5000, "rare": 3, **{f"one {i}": 1 for i in range(500)}}
    for law in ("gaussian", "laplace"):
        named = learn.selected(counts, law, 10.0, 1, 1e-7)
        assert set(named) == {"common"}


def test_levels_agree_by_least_squares() -> None:
    rng = np.random.default_rng(0)
    tree = [rng.normal(size=2**level) for level in (1, 2, 3)]
    leaves = np.eye(8)
    design = np.concatenate([leaves.reshape(8, 2**level, -1).sum(axis=2).T for level in (1, 2, 3)])
    expected = np.linalg.lstsq(design, np.concatenate(tree), rcond=None)[0]
    np.testing.assert_allclose(consistent(tree), expected, atol=1e-12)


def test_a_public_schema_may_leave_columns_open(shop: Path) -> None:
    document = json.loads(Path("public.json").read_text())
    for feature in document["features"]:
        feature.pop("values", None)
        feature.pop("cuts", None)
    Path("open.json").write_text(json.dumps({"features": document["features"]}))
    found = aggregate_private(
        "shop.csv",
        "bought",
        PrivacyOptions(epsilon=3.0, delta=1e-6, public="open.json"),
        positive="yes",
    )
    assert found.train.promise is not None
    assert found.train.promise.schema == "paid for"
    assert [f.kind for f in found.train.schema.features] == ["categorical", "categorical", "numeric"]


# --- whose privacy ---------------------------------------------------------------------------------


def test_everyone_keeps_as_many_records_as_allowed_and_not_the_first() -> None:
    rng = np.random.default_rng(0)
    persons = rng.integers(0, 2**63, 400).astype(np.uint64)[rng.integers(0, 400, 20_000)]
    kept = chosen(persons, 5)
    _, before = np.unique(persons, return_counts=True)
    _, after = np.unique(persons[kept], return_counts=True)
    np.testing.assert_array_equal(after, np.minimum(before, 5))
    first = np.zeros(len(persons), bool)
    for person in np.unique(persons):
        first[np.flatnonzero(persons == person)[:5]] = True
    # Of 50 records 5 stay: one of the first five would by chance be among them every tenth time.
    assert (kept & first).sum() / kept.sum() == pytest.approx(0.1, abs=0.03)


def test_persons_are_protected_by_as_much_more_noise(shop: Path, run_cli: Any) -> None:
    records = make_records(4321).append_column("who", pa.array([f"p{i % 500}" for i in range(4321)]))
    pacsv.write_csv(records, "people.csv")
    command = ("aggregate", "people.csv", *FILE, "--public", "public.json", *BUDGET)
    run = run_cli(*command, "--person", "who", "--max-records", "4", "-o", "p.agg")
    assert run.code == 0
    assert "for one person (at most 4 records)" in run.out
    data = load("p.agg")
    assert data.promise is not None
    [spending] = data.promise.spent
    assert (data.promise.unit, data.promise.max_records, spending.by) == ("person", 4, 4)
    assert spending.sensitivity == pytest.approx(4 * np.sqrt(3))
    assert data.rows == pytest.approx(2000, abs=250)  # of 4,321; σ of the total is some 30
    assert "who" not in data.schema.names


def test_a_record_of_nobody_is_refused(shop: Path, run_cli: Any) -> None:
    Path("people.csv").write_text("colour,y,who\nred,1,a\nblue,0,\n")
    run = run_cli("aggregate", "people.csv", "--label", "y", "-o", "p.agg", *BUDGET, "--person", "who",
                  "--categorical", "colour")  # fmt: skip
    assert run.code == 2
    assert "every record must be someone's" in run.err


# --- a budget that is kept -------------------------------------------------------------------------


def test_releases_of_one_source_add_up_until_the_budget_is_spent(shop: Path, run_cli: Any) -> None:
    command = ("aggregate", "shop.csv", *FILE, "--public", "public.json", *BUDGET)
    assert run_cli(*command, "-o", "a.agg", "--total-epsilon", "1.5").code == 0
    assert run_cli(*command, "-o", "b.agg").code == 0
    ledger = Ledger.read(ledger_beside("shop.csv"))
    total = ledger.total()
    # Two Gaussians of ε = 1 are one of √2 times the sensitivity: less than 2, and more than 1.
    assert 1.3 < total.epsilon < 1.5
    assert total.delta == pytest.approx(2e-6)
    lines = ledger.path.read_text().splitlines()
    before = written()
    run = run_cli(*command, "-o", "c.agg")
    assert run.code == 2
    assert "the budget is spent: 2 releases" in run.err
    assert run_cli(*command, "-o", "c.agg", "--total-epsilon", "100").code == 2  # a limit is never raised
    assert written() == before
    assert ledger.path.read_text().splitlines() == lines
    shown = run_cli("spent", "shop.csv")
    assert shown.code == 0
    assert "2 releases so far" in " ".join(shown.out.split())
    assert run_cli("spent", "shop.csv", "--json").json["releases"] == 2
    assert run_cli("spent", "public.json").code == 2
    a, b = load("a.agg"), load("b.agg")
    assert a.promise is not None
    assert b.promise is not None
    assert a.promise.source == b.promise.source == ledger.source
    with pytest.raises(TableError, match="two releases of the same records"):
        _ = a + b


def test_the_ledger_only_grows_and_notices_when_it_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "x.ledger.jsonl"
    ledger = Ledger.read(path)
    texts = []
    for number in range(3):
        promise = Promise(0.1, 1e-9, spent=(Spending("", "gaussian", 100.0, 1, 1),), releases=(f"r{number}",))
        with Ledger.read(path).spending(promise, None, "somewhere"):
            pass
        texts.append(path.read_text())
    assert texts[2].startswith(texts[1])
    assert texts[1].startswith(texts[0])
    assert len(Ledger.read(path).promises) == 3
    del ledger
    lines = texts[2].splitlines(keepends=True)
    for spoilt in (lines[:1] + lines[2:], [lines[0], lines[1].replace("0.1", "0.01"), *lines[2:]], ["{}\n"]):
        path.write_text("".join(spoilt))
        with pytest.raises(StoreError, match="changed or damaged"):
            Ledger.read(path)


def test_a_release_that_could_not_be_written_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.ledger.jsonl"
    promise = Promise(1.0, 1e-6, releases=("r",))

    def fail() -> None:
        with Ledger.read(path).spending(promise, 1.0, "out"):
            assert Ledger.read(path).total().releases == 1  # written down before anyone sees it
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk"):
        fail()
    assert Ledger.read(path).total().releases == 0
    with Ledger.read(path).spending(replace(promise, releases=("s",)), None, "out"):
        pass
    with pytest.raises(InputError, match="the budget is spent"):
        Ledger.read(path).check(replace(promise, releases=("t",)), None)


def test_each_file_that_went_into_a_release_has_it_in_its_ledger(shop: Path, run_cli: Any) -> None:
    pacsv.write_csv(make_records(1000, seed=5), "more.csv")
    command = ("aggregate", *FILE, "--public", "public.json", *BUDGET, "--total-epsilon", "1.2")
    assert run_cli(*command, "shop.csv", "more.csv", "-o", "both.agg").code == 0
    assert Ledger.read("shop.csv.ledger.jsonl").total() == Ledger.read("more.csv.ledger.jsonl").total()
    before = written()
    run = run_cli(*command, "more.csv", "-o", "more.agg")
    assert run.code == 2
    assert "more.csv.ledger.jsonl" in run.err
    assert written() == before


def test_of_two_releases_at_once_the_second_sees_the_first(tmp_path: Path) -> None:
    path = tmp_path / "x.ledger.jsonl"
    inside, refused = [], []

    def release(name: str) -> None:
        try:
            with Ledger.read(path).spending(Promise(1.0, 1e-6, releases=(name,)), 1.5, name):
                inside.append(name)
                time.sleep(0.05)
        except InputError:
            refused.append(name)

    threads = [threading.Thread(target=release, args=(f"r{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(inside), len(refused)) == (1, 3)
    assert [promise.releases for promise in Ledger.read(path).promises] == [(inside[0],)]


def test_releases_of_different_kinds_add_up_no_better_than_they_should() -> None:
    gaussian = Promise(1.0, 1e-6, spent=(Spending("", "gaussian", 40.30091, 1, 91),))
    laplace = Promise(0.5, 0.0, spent=(Spending("", "laplace", 182.0, 1, 91),))
    assert total_of([laplace, laplace]).epsilon == pytest.approx(1.0)
    both = total_of([gaussian, laplace])
    assert 1.0 < both.epsilon <= 1.5
    assert both.delta == 1e-6


# --- merging ---------------------------------------------------------------------------------------


def test_merged_parts_of_other_people_promise_the_largest_and_of_the_same_the_sum() -> None:
    first = release_tables(exact(2000), ASSUMED)
    second = release_tables(exact(3000, schema=first.schema), replace(ASSUMED, epsilon=2.0, delta=1e-5))
    apart, together = merge([first, second]), merge([first, second], same_people=True)
    assert apart.promise is not None
    assert together.promise is not None
    assert (apart.promise.epsilon, apart.promise.delta) == (2.0, 1e-5)
    assert together.promise.epsilon == 3.0
    assert together.promise.delta == pytest.approx(1.1e-5)
    assert len(apart.promise.releases) == 2
    scales = [next(iter(d.tables.values())).noise for d in (first, second, apart)]
    assert all(noise is not None and noise.of == "classes" for noise in scales)
    sigmas = [noise.scale for noise in scales if noise is not None]
    assert sigmas[2] == pytest.approx(np.hypot(sigmas[0], sigmas[1]))


def test_parts_of_one_release_promise_what_it_did_whoever_is_in_them(shop: Path, run_cli: Any) -> None:
    run_cli(
        "aggregate", "shop.csv", *FILE, "--public", "public.json", *BUDGET, "--split", "b=0.5", "-o", "a.agg"
    )
    run = run_cli("merge", "a.agg", "a.b.agg", "--same-people", "-o", "both.agg")
    assert run.code == 0
    assert "private: ε = 1, δ = 1e-06 for one record" in run.out
    assert run_cli("merge", "a.agg", "a.agg", "-o", "twice.agg").code == 2


def test_a_release_keeps_when_its_records_are_from_and_nothing_else_of_where_they_came_from() -> None:
    day = exact(500, period="2026-03-01")
    released = release_tables(day, ASSUMED)
    assert [(part.name, str(part.period)) for part in released.parts] == [("", "2026-03-01")]
    assert released.parts[0].rows == 0
    assert released.parts[0].fingerprint == ""
    faded = released * 0.5
    noise, whole = (next(iter(d.tables.values())).noise for d in (faded, released))
    assert noise is not None
    assert whole is not None
    assert (noise.of, noise.scale) == ("classes", whole.scale / 2)


def test_private_and_exact_parts_are_not_merged() -> None:
    with pytest.raises(TableError, match="private tables and tables that promise nothing"):
        _ = release_tables(exact(), ASSUMED) + exact()
    person = replace(ASSUMED, max_records=3)
    with pytest.raises(TableError, match="protects records and one that protects persons"):
        _ = release_tables(exact(), ASSUMED) + release_tables(exact(), person)


def test_private_tables_survive_their_files(tmp_path: Path) -> None:
    data = release_tables(exact(), ASSUMED)
    save(data, tmp_path / "p.agg")
    again = load(tmp_path / "p.agg")
    assert again.equals(data)
    assert again.promise == data.promise
    noise = next(iter(again.tables.values())).noise
    assert noise is not None
    assert noise.of == "classes"


# --- the old ways ----------------------------------------------------------------------------------


def test_rounding_goes_to_the_nearest_multiple_of_each_class() -> None:
    data = coarsened(exact(), Coarsening(round_to=10))
    for scope, table in data.tables.items():
        true = exact().tables[scope]
        negatives, positives = table.counts - table.sums[0], table.sums[0]
        for ours, theirs in ((positives, true.sums[0]), (negatives, true.counts - true.sums[0])):
            assert (ours % 10 == 0).all()
            assert np.abs(ours - theirs).max() <= 5
        assert (table.noise and (table.noise.law, table.noise.scale)) == ("rounding", 5.0)
    assert check(data).ok


def test_random_rounding_is_right_in_the_mean() -> None:
    true = exact(300)
    table = next(iter(true.tables.values()))
    drawn = [coarsened(true, Coarsening(random_round=8)).tables[table.features] for _ in range(400)]
    off = np.array([d.sums[0] - table.sums[0] for d in drawn])
    rest = table.sums[0] % 8
    assert (np.abs(off) < 8).all()
    # The mean of 400 draws between two neighbours 8 apart: √(r(8 − r)/400), five of them.
    assert (np.abs(off.mean(axis=0)) <= 5 * np.sqrt(rest * (8 - rest) / 400)).all()
    assert (off.std(axis=0)[rest == 0] == 0).all()
    assert check(coarsened(true, Coarsening(random_round=8))).ok


def test_small_cells_are_withheld(shop: Path, run_cli: Any) -> None:
    assert run_cli("aggregate", "shop.csv", *FILE, "-o", "e.agg").code == 0
    assert run_cli("noise", "e.agg", "-o", "s.agg", "--min-count", "55").code == 0
    assert run_cli("aggregate", "shop.csv", *FILE, "-o", "t.agg", "--min-count", "55").code == 0
    true, suppressed = load("e.agg"), load("s.agg")
    assert suppressed.equals(load("t.agg"))
    assert (suppressed.absent, suppressed.floor) == ("suppressed", 55.0)
    table, whole = (d.tables["size", "age"] for d in (suppressed, true))
    assert table.measured is not None
    np.testing.assert_array_equal(table.measured, whole.counts >= 55)
    assert (table.counts[~table.measured] == 0).all()
    assert 0 < table.measured.sum() < table.n_cells


# --- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epsilon", "0", "--delta", "1e-6"), "--epsilon 0 must be a number above 0"),
        (("--epsilon", "-1", "--delta", "1e-6"), "--epsilon -1 must be a number above 0"),
        (("--epsilon", "nan", "--delta", "1e-6"), "--epsilon nan must be a number above 0"),
        (("--epsilon", "1e-9", "--delta", "1e-6"), "is not between 0.0001 and 1000"),
        (("--epsilon", "1e9", "--delta", "1e-6"), "is not between 0.0001 and 1000"),
        (("--epsilon", "1", "--delta", "1e-300"), "--delta 1e-300 is too small"),
        (("--epsilon", "1", "--delta", "1e-6", "--processes", "0"), "--processes 0 is too few"),
        (("--epsilon", "1"), "Gaussian noise needs --delta"),
        (("--epsilon", "1", "--delta", "0.001"), "is not below one in the number of records"),
        (("--epsilon", "1", "--delta", "1"), "--delta 1 must be at least 0 and below 1"),
        (("--epsilon", "1", "--rho", "1", "--delta", "1e-6"), "not both"),
        (("--rho", "0.1", "--mechanism", "laplace"), "for Gaussian noise only"),
        (("--epsilon", "1", "--mechanism", "cauchy"), "is not gaussian or laplace"),
        (("--epsilon", "1", "--delta", "1e-6", "--total-epsilon", "0.5"), "the budget is spent"),
        (("--epsilon", "1", "--delta", "1e-6", "--round-to", "5"), "--round-to looks at the true counts"),
        (("--epsilon", "1", "--delta", "1e-6", "--seed", "1"), "No such option"),
        (("--delta", "1e-6"), "--delta is for private tables"),
        ((), "say what to do"),
        (("--round-to", "5", "--random-round", "5"), "exclude one another"),
        (("--round-to", "1"), "--round-to 1 is too small"),
    ],
)
def test_bad_input_writes_nothing_and_spends_nothing(
    shop: Path, run_cli: Any, options: tuple[str, ...], message: str
) -> None:
    run_cli("aggregate", "shop.csv", *FILE, "-o", "e.agg")
    before = written()
    assumed = ("--assume-public-schema",) if "--epsilon" in options or "--rho" in options else ()
    run = run_cli("noise", "e.agg", "-o", "p.agg", *options, *assumed)
    assert run.code == 2
    assert message in run.err
    assert len(run.err.splitlines()) == 1
    assert written() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epsilon", "0", "--delta", "1e-6", "--public", "public.json"), "must be a number above 0"),
        (("--epsilon", "1", "--delta", "0.001", "--public", "public.json"), "not below one in the number of"),
        (("--epsilon", "1", "--delta", "1e-6"), "nothing public is known of it"),
        (("--epsilon", "1", "--delta", "1e-6", "--schema", "public.json"), "does not say that the schema is"),
        (
            ("--epsilon", "1", "--delta", "1e-6", "--public", "public.json", "--total-epsilon", "0.5"),
            "the budget is spent",
        ),
        (
            ("--epsilon", "1", "--delta", "1e-6", "--public", "public.json", "--max-records", "3"),
            "--max-records needs --person",
        ),
        (
            ("--epsilon", "1", "--delta", "1e-6", "--public", "public.json", "--person", "nobody"),
            "nobody",
        ),
    ],
)
def test_records_that_cannot_be_released_so_leave_nothing_behind(
    shop: Path, run_cli: Any, options: tuple[str, ...], message: str
) -> None:
    before = written()
    run = run_cli("aggregate", "shop.csv", *FILE, "-o", "p.agg", *options)
    assert run.code == 2
    assert message in run.err
    assert len(run.err.splitlines()) == 1
    assert written() == before  # no tables, and no ledger


def test_noise_is_not_put_on_twice(shop: Path, run_cli: Any) -> None:
    run_cli("aggregate", "shop.csv", *FILE, "-o", "p.agg", "--public", "public.json", *BUDGET)
    run = run_cli("noise", "p.agg", "-o", "q.agg", *BUDGET, "--public", "public.json")
    assert run.code == 2
    assert "private already" in run.err
    assert "q.agg" not in written()
    with pytest.raises(TableError, match="not exact"):
        simulate(replace(load("p.agg"), promise=None), 1.0)


def test_without_the_extra_one_line_names_it(
    shop: Path, run_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cli("aggregate", "shop.csv", *FILE, "-o", "e.agg")
    for library in ("opendp", "opendp.domains", "dp_accounting", "dp_accounting.pld"):
        monkeypatch.setitem(sys.modules, library, None)
    run = run_cli("noise", "e.agg", "-o", "p.agg", *BUDGET, "--assume-public-schema")
    assert run.code == 2
    assert "pip install 'agglearn[privacy]'" in run.err
    assert len(run.err.splitlines()) == 1
    with pytest.raises(MissingExtraError):
        learn.selected({"a": 1}, "gaussian", 1.0, 1, 1e-6)
    assert simulate(load("e.agg"), 1.0).rows != 4321  # which needs none of it


def test_a_public_schema_that_is_none_is_refused(shop: Path, run_cli: Any) -> None:
    Path("odd.json").write_text('{"features": [{"name": "age", "kind": "numeric"}]}')
    run = run_cli("aggregate", "shop.csv", *FILE, "--public", "odd.json", *BUDGET, "-o", "p.agg")
    assert run.code == 2
    assert "column 'age': its least and greatest value" in run.err
    Path("odd.json").write_text('{"features": 3}')
    assert run_cli("aggregate", "shop.csv", *FILE, "--public", "odd.json", *BUDGET, "-o", "p.agg").code == 2
    with pytest.raises(SchemaError):
        release_tables(exact(), PrivacyOptions(epsilon=1.0, delta=1e-6, public="public.json"))


# --- a plan ----------------------------------------------------------------------------------------


def test_a_plan_shows_what_a_budget_buys_and_releases_nothing(shop: Path, run_cli: Any) -> None:
    before = written()
    options = ("--epsilon", "0.05,20", "--seeds", "2", "--bins", "8")
    run = run_cli("plan", "shop.csv", *FILE, *options)
    assert run.code == 0
    assert "not private" in run.err
    assert "█" in run.out
    assert written() == before
    found = run_cli("plan", "shop.csv", *FILE, *options, "--json").json
    assert found["private"] is False
    means = {(o["choice"], o["epsilon"]): o["mean"] for o in found["outcomes"]}
    assert {choice for choice, _ in means} == {"all pairs", "half of the pairs", "singles", "coarser bins"}
    for choice in ("all pairs", "coarser bins"):
        # 3,240 records in 3 tables: ε = 20 is σ = 0.5, next to nothing, and ε = 0.05 is σ = 130, nearly all.
        assert abs(means[choice, 20.0] - means[choice, None]) < 0.02
        assert means[choice, 0.05] < means[choice, None] - 0.02


def test_a_plan_from_tables_is_judged_by_them(shop: Path, run_cli: Any) -> None:
    run_cli("aggregate", "shop.csv", *FILE, "--bins", "8", "-o", "e.agg")
    run = run_cli("plan", "e.agg", "--epsilon", "5", "--seeds", "1")
    assert run.code == 0
    assert "drawn from a field fitted to the exact tables" in run.out
    assert run_cli("plan", "shop.csv", "--epsilon", "5").code == 2
    assert run_cli("plan", "e.agg", "--epsilon", "five").code == 2


def test_coarser_tables_are_those_of_coarser_bins() -> None:
    fine = exact(500)
    found = coarser(fine)
    assert found is not None
    again = aggregate(make_records(500), "bought", positive="yes", schema=found.schema)
    assert found.schema.feature("age").n_modalities == 3  # of 5 bins
    assert found.equals(again)


def test_half_of_the_pairs_is_chosen_without_looking_and_leaves_no_column_alone() -> None:
    columns = {f"x{i}": np.arange(50) % (2 + i) for i in range(6)} | {"y": np.arange(50) % 2}
    choices = choices_of(aggregate(columns, "y", categorical=["x*"], tables="pairs"))
    half = choices["half of the pairs"].tables
    assert len(half) == 9  # 3 even columns with 3 odd ones, of 15 pairs
    assert {name for scope in half for name in scope} == {f"x{i}" for i in range(6)}
    other = choices_of(aggregate({k: v[::-1] for k, v in columns.items()}, "y", categorical=["x*"]))
    assert list(other["half of the pairs"].tables) == list(half)


def test_a_database_is_released_where_it_is(shop: Path, run_cli: Any) -> None:
    with duckdb.connect("shop.duckdb") as connection:
        connection.execute("CREATE TABLE records AS SELECT * FROM read_csv('shop.csv', all_varchar=true)")
    run = run_cli("aggregate", "shop.duckdb", *FILE[:4], "--public", "public.json", *BUDGET, "-o", "p.agg")
    assert run.code == 0
    assert load("p.agg").rows == pytest.approx(4321, abs=130)
    assert Path("shop.duckdb.ledger.jsonl").exists()
    before = written()
    for options, message in [
        (("--person", "id"), "--person needs records that are read"),
        (("--ledger", "x.jsonl"), "a lazy source has no schema that is known"),
    ]:
        public = ("--public", "public.json") if "--person" in options else ()
        run = run_cli("aggregate", "shop.duckdb", *FILE[:4], *public, *BUDGET, "-o", "q.agg", *options)
        assert run.code == 2
        assert message in run.err
    assert written() == before


@pytest.mark.parametrize(
    "named", [["--categorical", "id"], ["--features", "id,colour"], ["--features", "at"]]
)
def test_values_that_point_at_single_records_are_refused_and_nothing_is_spent(
    tmp_path: Path, run_cli: Any, named: list[str]
) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"u{i},2024-01-{i % 28 + 1:02d}T10:{i % 60:02d}:00,{'rgb'[rng.integers(3)]},{rng.integers(2)}"
        for i in range(300)
    ]
    (tmp_path / "shop.csv").write_text("\n".join(["id,at,colour,y", *rows]) + "\n")
    spend = ["--epsilon", 1, "--delta", "1e-6", "--assume-public-schema"]
    done = run_cli(
        "aggregate", tmp_path / "shop.csv", "--label", "y", *spend, *named, "-o", tmp_path / "p.agg"
    )
    assert done.code == 2
    assert f"column {'at' if named[1] == 'at' else 'id'!r} points at single records" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.csv"]


def test_a_plan_bins_as_a_release_of_the_same_budget_does(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4000))
    records = {**{f"x{i}": column for i, column in enumerate(x)}, "y": (x[0] + x[1] > 1).astype(int)}
    seen: dict[float, set[int]] = {}

    def watched(data: AggregatedData, epsilon: float, *args: Any, **options: Any) -> AggregatedData:
        if len(data.tables) == 3 and max(map(len, data.tables)) == 2:  # all pairs, or those with coarser bins
            seen.setdefault(epsilon, set()).add(data.schema.cards[0])
        return simulate(data, epsilon, *args, **options)

    monkeypatch.setattr(plan, "simulate", watched)
    monkeypatch.setattr(plan, "SETTINGS", FitSettings(chains=200, iterations=3))
    plan.plan_records(records, "y", AggregateOptions(), epsilons=(0.3, 10.0), seeds=1)
    for epsilon, cards in seen.items():
        privacy = PrivacyOptions(epsilon=epsilon, delta=1e-6, assume_public_schema=True)
        # A plan holds a quarter of the records out: give a release as many as it has left.
        part = {name: column[:3000] for name, column in records.items()}
        released = aggregate_private(part, "y", privacy).train
        assert max(cards) == released.schema.cards[0]
    assert max(seen[0.3]) < max(seen[10.0])
