"""Tables that come every day: parts that are added once and taken out again, windows, values that are new."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agglearn
from agglearn import aggregate, drift, merge, window
from agglearn.errors import InputError, SchemaError, TableError
from agglearn.tables.format import load, save
from agglearn.tables.periods import Period
from tests.fields import random_field, random_tables, with_noise


def day(number: int, rows: int = 400, **options: Any) -> agglearn.AggregatedData:
    """A day of a log in which a colour becomes rarer, and clicks more frequent."""
    rng = np.random.default_rng(number)
    red = rng.random(rows) < 0.5 - 0.01 * number
    records = {
        "colour": np.where(red, "red", "blue"),
        "size": rng.choice(["S", "M", "L"], rows),
        "click": (rng.random(rows) < 0.2 + 0.01 * number).astype(int),
    }
    schema = options.pop("schema", None)
    return aggregate(records, "click", schema=schema, period=f"2026-03-{number:02}", **options)


@pytest.fixture(scope="module")
def days() -> list[agglearn.AggregatedData]:
    first = day(1)
    return [first, *(day(n, schema=first.schema) for n in range(2, 11))]


# --- the ledger -------------------------------------------------------------------------------------------


def test_a_sum_knows_its_parts(days: list[agglearn.AggregatedData], tmp_path: Path) -> None:
    for n, part in enumerate(days[:3], 1):
        save(part, tmp_path / f"d{n}.agg")
    total = merge(load(tmp_path / f"d{n}.agg") for n in (1, 2, 3))
    save(total, tmp_path / "all.agg")
    for data in (total, load(tmp_path / "all.agg")):
        assert [(p.name, str(p.period), p.rows, p.weight) for p in data.ledger] == [
            (f"d{n}", f"2026-03-0{n}", 400, 1.0) for n in (1, 2, 3)
        ]
    assert sum(p.rows for p in total.ledger) == total.rows


def test_no_part_is_added_twice_whatever_it_is_called(tmp_path: Path, run_cli: Any) -> None:
    a, b = random_tables(1), random_tables(2)
    save(a, tmp_path / "a.agg")
    save(b, tmp_path / "b.agg")
    shutil.copytree(tmp_path / "a.agg", tmp_path / "c.agg")
    run_cli("merge", tmp_path / "a.agg", tmp_path / "b.agg", "-o", tmp_path / "all.agg")
    for again in ("a.agg", "c.agg", "all.agg"):
        run = run_cli("merge", tmp_path / "all.agg", tmp_path / again, "-o", tmp_path / "twice.agg")
        assert run.code == 2
        assert run.err.startswith("agglearn: part 'a' is in the sum already, as 'a': ")
        assert run.err.count("\n") == 1
        assert not (tmp_path / "twice.agg").exists()


def test_equal_counts_of_two_periods_are_two_parts() -> None:
    records = {"x": ["a", "b"], "y": [0, 1]}
    days = [aggregate(records, "y", period=f"2026-03-0{n}") for n in (1, 2)]
    assert merge(days).rows == 4
    with pytest.raises(TableError, match="in the sum already"):
        merge([days[0], days[0]])


def test_what_is_taken_out_leaves_exactly_the_others(days: list[agglearn.AggregatedData]) -> None:
    assert (merge(days) - days[3]).equals(merge([*days[:3], *days[4:]]))
    assert (merge(days) - merge(days[:4])).equals(merge(days[4:]))


def test_taking_a_noisy_part_out_takes_its_noise_along() -> None:
    parts = [
        with_noise(random_tables(n), "gaussian", scale, scale, seed=n) for n, scale in enumerate((3.0, 4.0))
    ]
    left = merge(parts) - parts[1]
    for scope, table in left.tables.items():
        assert table.noise is not None
        assert table.noise.scale == pytest.approx(3.0)
        np.testing.assert_allclose(table.counts, parts[0].tables[scope].counts, atol=1e-9)


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        (lambda days: days[5], "part '2026-03-06' was never added to these tables"),
        (lambda days: merge(days[:2]), "all parts would be taken out"),
    ],
    ids=["never added", "everything"],
)
def test_what_cannot_be_taken_out_is_refused(
    days: list[agglearn.AggregatedData], gone: Any, message: str
) -> None:
    with pytest.raises(TableError, match=message):
        merge(days[:2]) - gone(days)


def test_noise_put_on_a_sum_leaves_no_trace_of_its_exact_parts(tmp_path: Path) -> None:
    # A checksum of exact tables would confirm a guess of them.
    total = random_tables(1) + random_tables(2)
    prints = [part.fingerprint for part in total.ledger]
    noisy = with_noise(total, "gaussian", 2.0, 2.0)
    save(noisy, tmp_path / "noisy.agg")
    text = (tmp_path / "noisy.agg" / "manifest.json").read_text()
    assert not any(fingerprint in text for fingerprint in prints)
    assert len(load(tmp_path / "noisy.agg").ledger) == 1


_UPDATER = """
import sys
from agglearn.tables.format import load, save
folder = sys.argv[1]
days = [load(f"{folder}/d{n}.agg") for n in range(2, 8)]
print("go", flush=True)
while True:
    whole = load(f"{folder}/all.agg")
    for part in days:
        whole = whole + part
        save(whole, f"{folder}/all.agg")
    for part in days:
        whole = whole - part
        save(whole, f"{folder}/all.agg")
"""


def test_a_ledger_killed_in_the_middle_of_an_update_is_the_old_one_or_the_new_one(
    days: list[agglearn.AggregatedData], tmp_path: Path
) -> None:
    for n, part in enumerate(days[:7], 1):
        save(part, tmp_path / f"d{n}.agg")
    save(days[0] + days[9], tmp_path / "all.agg")
    draw = np.random.default_rng(0)
    for _ in range(3):
        command = [sys.executable, "-c", _UPDATER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as updater:
            assert updater.stdout is not None
            assert updater.stdout.readline() == "go\n"
            time.sleep(draw.uniform(0, 0.2))
            os.kill(updater.pid, signal.SIGKILL)
        found = load(tmp_path / "all.agg")  # raises unless it is whole
        by_day = {str(p.period): p for p in found.ledger}
        assert len(by_day) == len(found.ledger)
        members = [d for d in days if str(d.ledger[0].period) in by_day]
        np.testing.assert_array_equal(
            found.table("colour").counts, sum(d.table("colour").counts for d in members)
        )
        save(days[0] + days[9], tmp_path / "all.agg")


# --- vocabularies that grow -------------------------------------------------------------------------------


def test_a_new_value_gets_a_code_behind_the_others_and_parts_add_up() -> None:
    one = {"x": ["a", "b", "a"], "z": ["u", "v", "v"], "y": [0, 1, 1]}
    two = {"x": ["c", "a", "d"], "z": ["v", "u", "v"], "y": [1, 0, 1]}
    first = aggregate(one, "y")
    second = aggregate(two, "y", schema=first.schema, grow=True)
    assert second.schema.feature("x").modalities == ("a", "b", "c", "d")
    for total in (first + second, second + first):
        both = aggregate({k: one[k] + two[k] for k in one}, "y", schema=second.schema)  # type: ignore[operator]
        assert total.equals(both)
    assert (first + second).ledger[1].new == {"x": ("c", "d")}
    assert (first + second - second).table("x").counts.tolist() == [2, 1, 0, 0]


def test_values_that_two_days_add_apart_stand_side_by_side() -> None:
    first = aggregate({"x": ["a", "b"], "y": [0, 1]}, "y")
    left = aggregate({"x": ["a", "c"], "y": [0, 1]}, "y", schema=first.schema, grow=True)
    right = aggregate({"x": ["d", "b"], "y": [0, 1]}, "y", schema=first.schema, grow=True)
    total = first + left + right
    assert dict(zip(total.schema.feature("x").modalities, total.table("x").counts, strict=True)) == {
        "a": 2,
        "b": 2,
        "c": 1,
        "d": 1,
    }


def test_rare_and_missing_values_keep_their_modality_as_the_vocabulary_grows() -> None:
    records = {"x": ["a"] * 5 + ["b"] * 4 + ["r", None], "y": [0, 1] * 5 + [1]}
    first = aggregate(records, "y", max_modalities=2)
    second = aggregate(
        {"x": ["c"] * 3 + [None], "y": [1, 0, 1, 0]}, "y", schema=first.schema, grow=True, max_modalities=3
    )
    total = first + second
    assert dict(zip(total.schema.feature("x").modalities, total.table("x").counts, strict=True)) == {
        "a": 5,
        "b": 4,
        "c": 3,
        "(other)": 1,
        "(missing)": 2,
    }
    # A part is known again over the grown vocabulary.
    again = aggregate(records, "y", schema=total.schema)
    with pytest.raises(TableError, match="in the sum already"):
        total + again


@pytest.mark.parametrize(
    "other",
    [{"x": ["q", "r"], "y": [0, 1]}, {"x": [0.5, 1.5], "y": [0, 1]}, {"w": ["a", "b"], "y": [0, 1]}],
    ids=["vocabulary", "kind", "name"],
)
def test_schemas_of_no_common_lineage_are_refused(other: dict[str, Any]) -> None:
    first = aggregate({"x": ["a", "b"], "y": [0, 1]}, "y")
    with pytest.raises(SchemaError, match=r"different schemas cannot be merged.*grow=True"):
        first + aggregate(other, "y")


def test_growing_needs_something_to_grow_from(run_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\na,1\n")
    run = run_cli("aggregate", tmp_path / "a.csv", "--label", "y", "--grow", "-o", tmp_path / "a.agg")
    assert (run.code, run.err) == (2, "agglearn: --grow needs --schema: there is nothing to grow from\n")


# --- windows ----------------------------------------------------------------------------------------------


def test_the_last_days_are_their_sum(
    days: list[agglearn.AggregatedData], tmp_path: Path, run_cli: Any
) -> None:
    shuffled = [days[n] for n in (4, 9, 0, 7, 2, 8, 1, 5, 3, 6)]
    assert window(shuffled, last=3).equals(merge(days[7:]))
    for n, part in enumerate(days, 1):
        save(replace(part, parts=()), tmp_path / f"2026-03-{n:02}.agg")  # its day by its name alone
    found = run_cli("window", *tmp_path.glob("*.agg"), "--last", 3, "-o", tmp_path / "w.agg", "--json")
    assert (found.code, found.json["rows"]) == (0, 1200)
    assert load(tmp_path / "w.agg").equals(merge(days[7:]))


def test_fading_counts_are_weighted_sums_in_effective_records(days: list[agglearn.AggregatedData]) -> None:
    found = window(days, half_life=2.0)
    w = 0.5 ** (np.arange(9, -1, -1) / 2)
    rows = np.array([d.rows for d in days])
    scale = (w @ rows) / (w**2 @ rows)
    assert found.rows == pytest.approx((w @ rows) ** 2 / (w**2 @ rows))
    each = np.array([d.table("colour", "size").counts for d in days])
    np.testing.assert_allclose(found.table("colour", "size").counts, scale * np.tensordot(w, each, 1))
    variances = found.tables["colour", "size"].variances
    assert variances is not None
    np.testing.assert_allclose(variances, scale**2 * np.tensordot(w**2, each, 1))
    # On the whole a count says as much as if so many records had been counted once each.
    assert variances.sum() == pytest.approx(found.rows)


def test_a_window_that_fades_is_written_with_its_variances_and_fits(
    days: list[agglearn.AggregatedData], tmp_path: Path
) -> None:
    found = window(days, half_life=3.0)
    save(found, tmp_path / "w.agg")
    assert load(tmp_path / "w.agg").equals(found)
    assert agglearn.check(found).ok
    model = agglearn.fit(found, agglearn.FitSettings(engine="exact", iterations=30))
    assert model.rows == found.rows


def test_noise_fades_with_the_counts() -> None:
    parts = [
        replace(
            with_noise(random_tables(n), "gaussian", 3.0, 3.0, n),
            parts=(agglearn.Part(period=Period(n, n, False)),),
        )
        for n in range(3)
    ]
    w = 0.5 ** np.array([2.0, 1.0, 0.0])
    scale = w.sum() / (w**2).sum()
    for table in window(parts, half_life=1.0).tables.values():
        assert table.noise is not None
        assert table.noise.scale == pytest.approx(3.0 * scale * np.sqrt((w**2).sum()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a window needs last periods, or half_life"),
        ({"last": 0}, "last 0 must be at least 1"),
        ({"half_life": -1.0}, "half_life -1 must be above 0"),
        ({"half_life": float("nan")}, "half_life nan must be above 0"),
    ],
)
def test_a_window_of_nothing_is_refused(
    days: list[agglearn.AggregatedData], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        window(days, **options)


def test_a_window_does_not_cut_a_sum_in_two(days: list[agglearn.AggregatedData]) -> None:
    with pytest.raises(
        InputError, match="a sum of 9 parts is of 2026-03-01/2026-03-09, which the window cuts"
    ):
        window([merge(days[:9]), days[9]], last=3)


def test_a_part_of_no_day_has_no_place_in_a_window() -> None:
    with pytest.raises(InputError, match="part '\\(unnamed\\)' does not say when it is from"):
        window([random_tables()], last=3)


def test_a_part_of_a_fading_window_is_not_taken_out_of_it(days: list[agglearn.AggregatedData]) -> None:
    with pytest.raises(TableError, match=r"counts 1\.66 times in a window that fades: make the window again"):
        window(days, half_life=2.0) - days[-1]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-03-01", 739676, 739676),
        ("2026-03-01/2026-03-07", 739676, 739682),
        ("12", 12, 12),
        ("3/5", 3, 5),
    ],
)
def test_a_period_is_a_day_a_span_or_a_number(text: str, first: int, last: int) -> None:
    found = Period.parse(text)
    assert (found.first, found.last, str(found)) == (first, last, text)


@pytest.mark.parametrize(
    "text", ["", "March", "2026-02-30", "2026-03-07/2026-03-01", "1/2026-03-01", "1/2/3"]
)
def test_what_is_no_period_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a day"):
        Period.parse(text)


def test_in_a_log_that_drifts_fading_beats_the_whole_sum_and_the_last_day() -> None:
    """Sixty days of 400 records whose label slowly turns round: judged by the true law of the day after."""
    old, new = (random_field(seed, (4, 5, 3), (0.3, 0.8)) for seed in (1, 2))
    days = []
    for n in range(60):
        share = n / 60
        field = replace(new, theta=(1 - share) * old.theta + share * new.theta, mu=old.mu)
        tables = field.tables(400, seed=n)
        days.append(replace(tables, parts=(agglearn.Part(period=Period(n, n, False)),)))
    truth = replace(new, mu=old.mu)
    settings = agglearn.FitSettings(engine="exact", iterations=120)

    def loss(data: agglearn.AggregatedData) -> float:
        model = agglearn.fit(data, settings)
        s = model.field.log_odds(np.ascontiguousarray(truth.states.T))
        return float(truth.law[:, 0] @ np.logaddexp(0, s) + truth.law[:, 1] @ np.logaddexp(0, -s))

    faded, whole, last = loss(window(days, half_life=10)), loss(merge(days)), loss(days[-1])
    # Measured for five pairs of fields: better than the last day by 0.013 to 0.025, than the sum by 0.037 to
    # 0.063; this pair is the one of 0.013 and 0.062.
    assert faded < min(whole, last) - 0.005


# --- drift ------------------------------------------------------------------------------------------------


def test_what_changed_is_found_and_what_did_not_is_not() -> None:
    before = day(1, 20_000)
    rng = np.random.default_rng(7)
    n = 20_000
    records = {
        "colour": np.where(rng.random(n) < 0.35, "red", "blue"),  # was 0.49
        "size": rng.choice(["S", "M", "L"], n),
        "click": (rng.random(n) < 0.21).astype(int),
    }
    found = drift(before, aggregate(records, "click", schema=before.schema))
    assert found.records[0].features == ("colour", "size")
    assert abs(found.rate_z) < 4
    (table,) = found.tables
    assert table.records_z is not None
    assert table.records_z > 10
    assert table.label_z is not None
    assert abs(table.label_z) < 4
    assert drift(before, before).records == ()


def test_the_rate_of_a_cell_that_changed_comes_first() -> None:
    rng = np.random.default_rng(3)
    n = 30_000
    x, z = rng.choice(["a", "b", "c"], n), rng.choice(["u", "v"], n)
    y = (rng.random(n) < 0.3).astype(int)
    changed = np.where((x == "b") & (z == "v"), (rng.random(n) < 0.5).astype(int), y)
    before = aggregate({"x": x, "z": z, "y": y}, "y")
    after = aggregate({"x": x, "z": z, "y": changed}, "y", schema=before.schema)
    found = drift(before, after)
    assert found.labels[0].values == ("b", "v")
    assert all(cell.z == 0 or abs(cell.z) < 1e-9 for cell in found.records)


def test_standard_errors_are_what_chance_gives_with_noise_and_without() -> None:
    """Two samples of one law, many times: the deviates of tables have mean 0 and spread 1, about."""
    field = random_field(4, (5, 6, 4))
    for noise in (0.0, 20.0):
        z = []
        for seed in range(60):
            pair = [field.tables(4_000, seed=1_000 * k + seed) for k in (1, 2)]
            if noise:
                pair = [
                    with_noise(t, "gaussian", noise, noise, seed=7 * seed + k) for k, t in enumerate(pair)
                ]
            found = drift(pair[0], pair[1]).tables
            z += [t.records_z for t in found] + [t.label_z for t in found]
        told = np.array([value for value in z if value is not None])
        # 360 deviates, three tables of one sample at a time: their mean errs by 0.1, their spread by 0.07.
        # With noise the label's is a little too careful, as the rates' errors are taken to be of full size.
        assert abs(told.mean()) < 0.5
        assert 0.7 < told.std() < 1.3


def test_drift_on_the_command_line(days: list[agglearn.AggregatedData], tmp_path: Path, run_cli: Any) -> None:
    save(days[0], tmp_path / "a.agg")
    grown = aggregate(
        {"colour": ["green"] * 30 + ["red"] * 30, "size": ["S", "L"] * 30, "click": [0, 1] * 30},
        "click",
        schema=days[0].schema,
        grow=True,
    )
    save(grown, tmp_path / "b.agg")
    run = run_cli("drift", tmp_path / "a.agg", tmp_path / "b.agg", "--json")
    assert run.code == 0
    assert run.json["new"] == {"colour": ["green"]}
    assert run.json["records"][0]["values"][0] in ("green", "blue")
    assert (
        "Where did the share of the records change most?"
        in run_cli("drift", tmp_path / "a.agg", tmp_path / "b.agg").out
    )


def test_a_cell_withheld_before_and_large_now_is_told(days: list[agglearn.AggregatedData]) -> None:
    data = days[0]
    scope = ("colour", "size")
    table = data.tables[scope]
    measured = np.ones(table.counts.shape, bool)
    measured[0, 0] = False
    counts = np.where(measured, table.counts, 0)
    sums = np.where(measured, table.sums, 0)
    withheld = replace(
        data,
        tables={scope: replace(table, counts=counts, sums=sums, measured=measured)},
        absent="suppressed",
        floor=10,
    )
    found = drift(withheld, data)
    assert found.records[0].values == tuple(data.schema.feature(f).modalities[0] for f in scope)
    assert found.records[0].z > 3
