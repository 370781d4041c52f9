"""What a column becomes: its kind, its bins and its vocabulary, and the reason that is given."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agglearn
from agglearn.errors import InputError
from agglearn.records import survey as surveys
from agglearn.records.binning import quantile_cuts
from agglearn.records.encoding import learn_encoding
from agglearn.records.learn import ColumnNote, learn_feature, why_left_out
from agglearn.records.options import Coding
from agglearn.records.survey import ColumnSurvey
from agglearn.schema.features import Binned, Categorical, Feature

RNG = np.random.default_rng(0)


def learn(values: Any, name: str = "x", *, chunks: int = 1, **coding: Any) -> tuple[Feature, ColumnNote]:
    """Learn a column from its values, perhaps given in several batches."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    survey = ColumnSurvey(name)
    size = max(1, -(-len(array) // chunks))
    for start in range(0, len(array), size):
        survey.add(array.slice(start, size))
    return learn_feature(survey, Coding(**coding))


# --- kinds -----------------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, Any, str, str]] = {
    "text": ("colour", ["red", "blue"] * 50, "categorical", "text"),
    "booleans": ("flag", [True, False] * 50, "categorical", "boolean"),
    "dates": ("day", [dt.date(2024, 1, 1 + i % 9) for i in range(99)], "categorical", "date"),
    "times": ("at", [dt.time(i % 9) for i in range(99)], "categorical", "time"),
    "timestamps": ("at", [dt.datetime(2024, 1, 1 + i % 9) for i in range(99)], "categorical", "timestamp"),
    "few integers": (
        "children",
        list(range(8)) * 9,
        "categorical",
        "8 distinct integers (a quantity? numeric=['children'])",
    ),
    "ages": ("age", list(range(17, 90)), "numeric", "73 distinct integers (codes? categorical=['age'])"),
    "ages as text": (
        "age",
        [str(a) for a in range(17, 90)],
        "numeric",
        "73 distinct integers (codes? categorical=['age'])",
    ),
    "an odd name is quoted": ("my age", list(range(17, 90)), "numeric", "(codes? categorical=['my age'])"),
    "fractions": ("price", [0.5, 1.5], "numeric", "numbers"),
    "ids by name": (
        "site_id",
        list(range(100)),
        "categorical",
        "100 distinct integers, named like codes (a quantity? numeric=['site_id'])",
    ),
    "categories by name": ("cat4", list(range(100)), "categorical", "named like codes"),
    "zip": ("zip", [10000 + i for i in range(50)], "categorical", "named like codes"),
    "hashed ids": (
        "publisher",
        RNG.integers(0, 2**62, 400),
        "categorical",
        "distinct integers, spread like hashes (a quantity? numeric=['publisher'])",
    ),
    "signed hashes": ("h", RNG.integers(-(2**31), 2**31, 400), "categorical", "spread like hashes"),
    "incomes": (
        "fnlwgt",
        np.unique(np.exp(RNG.normal(12, 0.5, 900)).astype(int)),
        "numeric",
        "distinct integers (codes? categorical=['fnlwgt'])",
    ),
    "mostly numbers": (
        "age",
        [*map(str, range(99)), "unknown"],
        "categorical",
        "1 of 100 values are not numbers, so all are read as text (a quantity? numeric=['age'])",
    ),
    "identifiers": (
        "session",
        [f"s{i}" for i in range(200)],
        "categorical",
        "text",
    ),
    "codes with zeros": ("branch", [f"{i:03d}" for i in range(15)], "categorical", "15 distinct integers"),
}


@pytest.mark.parametrize("case", KINDS)
def test_the_kind_of_a_column_is_told_with_its_reason(case: str) -> None:
    name, values, kind, why = KINDS[case]
    feature, note = learn(values, name)
    assert feature.kind == note.kind == kind
    assert why in note.why
    assert note.modalities == feature.n_modalities


def test_the_user_has_the_last_word() -> None:
    ages = list(range(17, 90))
    assert learn(ages, "age", categorical=("a*",))[0].n_modalities == 73
    assert learn([1, 2, 3], "site_id", numeric=("site_id",))[0].kind == "numeric"
    with pytest.raises(InputError, match="'age' is asked to be both categorical and numeric"):
        learn(ages, "age", categorical=("age",), numeric=("*",))


def test_codes_with_leading_zeros_stay_as_they_are() -> None:
    feature, _ = learn(["007", "7", "07"], "branch")
    assert isinstance(feature, Categorical)
    assert sorted(feature.values) == ["007", "07", "7"]
    assert feature.value_type == "string"
    assert len(set(feature.encode(pa.array(["007", "07", "7"])).tolist())) == 3


def test_integers_written_as_text_are_integers() -> None:
    feature, _ = learn(["10", "9", "-1"], "n")
    assert isinstance(feature, Categorical)
    assert feature.values == ("-1", "9", "10")
    assert feature.value_type == "integer"


def test_a_column_without_any_value_is_refused() -> None:
    for values in (pa.nulls(3), pa.array([None] * 3, pa.string()), pa.array([float("nan")] * 3)):
        with pytest.raises(InputError, match="'x' has no value in any record: leave it out with exclude"):
            learn(values)


def test_text_without_any_number_cannot_be_numeric() -> None:
    with pytest.raises(InputError, match="'x' has no number in it"):
        learn(["a", "b"], numeric=("x",))


# --- categories ------------------------------------------------------------------------------------


def test_missing_values_have_a_modality_where_there_are_any() -> None:
    feature, note = learn(["a", None, "b", None])
    assert feature.modalities == ("a", "b", "(missing)")
    assert note.missing == 2
    assert learn(["a", "b"])[0].modalities == ("a", "b")
    assert learn([1.5, float("nan"), 2.5])[0].missing


def test_only_the_commonest_values_keep_a_modality_of_their_own() -> None:
    values = ["a"] * 5 + ["b"] * 4 + ["c"] * 3 + ["d"] * 2 + ["e"]
    feature, note = learn(values, max_modalities=2)
    assert feature.modalities == ("a", "b", "(other)")
    assert "3 rare values folded into one (40.0% of the records)" in note.why
    feature, _ = learn(values, min_modality_count=3)
    assert feature.modalities == ("a", "b", "c", "(other)")
    feature, note = learn(values, min_modality_count=1)
    assert feature.modalities == ("a", "b", "c", "d", "e")
    assert "folded" not in note.why


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1), st.integers(2, 9), st.integers(1, 5))
def test_folding_keeps_exactly_the_values_that_are_common_enough(
    values: list[str], most: int, least: int
) -> None:
    feature, _ = learn(values, max_modalities=most, min_modality_count=least)
    assert isinstance(feature, Categorical)
    counts = {v: values.count(v) for v in values}
    kept = {v for v in counts if v in feature.values}
    assert len(kept) == min(most, sum(n >= least for n in counts.values()))
    assert all(counts[v] >= least for v in kept)
    gone = counts.keys() - kept
    assert not gone or not kept or max(counts[v] for v in gone) <= min(counts[v] for v in kept) or least > 1
    assert feature.other == bool(gone)
    assert max(feature.encode(pa.array(values))) < feature.n_modalities


@pytest.mark.parametrize("chunks", [2, 7])
@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b", None, "a", "c", "b"] * 3),
        pa.array(["a", "b", None, "a", "c", "b"] * 3).dictionary_encode(),
        pa.array([1, 5, None, 1, 2, 2] * 3, pa.int8()),
        pa.array([1.5, None, float("nan"), 1.5, 0.0, 2] * 3),
        pa.array([True, None, False] * 6),
    ],
    ids=lambda a: str(a.type),
)
def test_what_is_learnt_does_not_depend_on_the_batches(values: Any, chunks: int) -> None:
    assert learn(values, chunks=chunks) == learn(values)


def test_a_column_may_change_its_type_from_file_to_file() -> None:
    def survey(*arrays: Any) -> Feature:
        found = ColumnSurvey("x")
        for array in arrays:
            found.add(array)
        return learn_feature(found, Coding())[0]

    plain = survey(pa.array([1, 2, 2, 3]))
    assert survey(pa.array([1, 2], pa.int8()), pa.array([2, 3], pa.int64())) == plain
    gaps = survey(pa.array([1, 2], pa.int8()), pa.array([2.0, 3.0]))
    assert gaps.modalities == plain.modalities
    assert learn(pa.array([2**64 - 1, 2**63], pa.uint64()))[0].modalities == (
        "9223372036854775808",
        "18446744073709551615",
    )
    for first, second in ((["1", "2"], [2, 3]), ([1, 2], ["2", "3"])):
        assert survey(pa.array(first), pa.array(second)) == plain
    mixed = survey(pa.array([1, 2]), pa.array(["2", "x"]).dictionary_encode())
    assert mixed.modalities == ("1", "2", "x")
    assert survey(pa.array(["a", "b"]), pa.array(["b"]).dictionary_encode()).modalities == ("a", "b")
    assert survey(pa.nulls(2), pa.array(["b"])).modalities == ("b", "(missing)")
    large = [Decimal(10**30), Decimal(10**30 + 1)]
    assert survey(pa.array(large), pa.array(large)).modalities == (f"{10**30}", f"{10**30 + 1}")
    assert survey(pa.array([True]), pa.array(["false"])).modalities == ("false", "true")


def test_more_distinct_values_than_memory_allows_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "KEPT", 4000)
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=20_000)
    feature, note = learn(numbers, chunks=20, bins=10)
    assert isinstance(feature, Binned)
    counts = np.bincount(feature.encode(pa.array(numbers)), minlength=10)
    # Values are thinned three times, to 2,000 groups: each may move both ends of a bin by ten records.
    np.testing.assert_allclose(counts, 2000, atol=60)
    # Common values are kept whatever comes between them.
    texts = [f"rare {i}" for i in range(10_000)] + ["often", "always"] * 2000
    rng.shuffle(texts)
    feature, note = learn(texts, chunks=20, max_modalities=2)
    assert feature.modalities == ("always", "often", "(other)")
    assert "more than" in note.why


# --- bins ------------------------------------------------------------------------------------------


def bin_counts(feature: Feature, values: Any) -> npt.NDArray[np.int64]:
    return np.bincount(feature.encode(pa.array(values)), minlength=feature.n_modalities)


def test_a_point_mass_gets_a_bin_of_its_own_and_the_rest_is_split() -> None:
    rng = np.random.default_rng(0)
    gain = np.concatenate([np.zeros(9200), rng.permutation(np.arange(1, 801))])
    feature, note = learn(gain, "capital-gain", bins=10)
    counts = bin_counts(feature, gain)
    assert feature.modalities[0] == "≤ 0"
    assert counts[0] == 9200
    assert len(counts) == 10
    # 800 values in nine bins: 88 or 89 each.
    assert set(counts[1:].tolist()) == {88, 89}
    assert "bins by quantiles" in note.why


@pytest.mark.parametrize(("records", "bins"), [(60, 10), (300, 12), (450, 18), (5000, 20)])
def test_a_column_has_as_many_bins_as_its_records_can_fill(records: int, bins: int) -> None:
    feature, _ = learn(np.arange(records) * 1.5)
    assert feature.n_modalities == bins


def test_a_point_mass_in_the_middle_splits_what_is_left_on_either_side() -> None:
    values = [*range(-300, 0), *[0] * 400, *range(1, 101)]
    feature, _ = learn(values, bins=8)
    counts = bin_counts(feature, values)
    heavy = feature.modalities.index("0")
    assert counts[heavy] == 400
    assert heavy == 5  # three quarters of the seven other bins lie below, as three quarters of the rest do
    assert counts[:heavy].tolist() == [60] * 5
    assert counts[heavy + 1 :].tolist() == [50, 50]


def test_few_distinct_values_have_a_bin_each() -> None:
    values = [0.5] * 3 + [1.5] * 200 + [2.5]
    feature, _ = learn(values)
    assert bin_counts(feature, values).tolist() == [3, 200, 1]


value_counts = st.dictionaries(
    st.integers(-1000, 1000), st.integers(1, 5) | st.integers(1, 2000), min_size=1, max_size=60
)


@given(value_counts, st.integers(2, 20))
def test_quantile_bins_cover_everything_in_order_and_none_is_empty(counts: dict[int, int], bins: int) -> None:
    values = np.array(sorted(counts), np.float64)
    weights = np.array([counts[int(v)] for v in values], np.int64)
    cuts = quantile_cuts(values, weights, bins)
    feature = Binned(name="x", cuts=cuts, low=values[0], high=values[-1], missing=False)
    codes = feature.encode(pa.array(values)).astype(int)
    assert (np.diff(codes) >= 0).all()
    assert sorted(set(codes.tolist())) == list(range(feature.n_modalities))
    heavy = weights * bins > weights.sum()
    for code in codes[heavy]:
        assert (codes == code).sum() == 1, "a heavy value shares its bin"
    # One bin for each heavy value and each run between them at least; no more than asked otherwise.
    runs = int((np.diff(np.concatenate([[1], heavy.astype(int), [1]])) == -1).sum())
    assert feature.n_modalities <= max(bins, heavy.sum() + runs)
    assert feature.n_modalities >= min(bins, len(values))


@given(st.integers(1, 3000), st.integers(2, 30))
def test_without_heavy_values_every_bin_has_its_share(n: int, bins: int) -> None:
    counts = np.bincount(
        Binned(
            name="x",
            cuts=quantile_cuts(np.arange(n, dtype=float), np.ones(n, np.int64), bins),
            low=0,
            high=n,
            missing=False,
        ).encode(pa.array(np.arange(n, dtype=float)))
    )
    assert counts.max() - counts.min() <= 1
    assert len(counts) == min(n, bins)


def test_bins_of_equal_width_divide_the_range() -> None:
    values = [*np.linspace(0, 90, 50), 100.0]
    feature, note = learn(values, binning="width", bins=5)
    assert isinstance(feature, Binned)
    assert [c.value for c in feature.cuts] == pytest.approx([20, 40, 60, 80])
    assert "5 bins of equal width" in note.why
    assert feature.n_modalities == 5
    assert learn([3.5] * 9, binning="width")[0].n_modalities == 1


def test_given_edges_are_used_as_they_are() -> None:
    feature, note = learn(list(range(18, 80)), "age", edges={"age": [60, 30, 30]})
    assert feature.modalities == ("< 30", "[30, 60)", "≥ 60")
    assert "edges given" in note.why


def test_numbers_among_text_are_binned_when_told_and_the_rest_is_counted() -> None:
    values = [*map(str, range(100)), "old", "old", None]
    feature, note = learn(values, "age", numeric=("age",), bins=4)
    assert bin_counts(feature, values[:100]).tolist()[:4] == [25] * 4
    assert "2 values are not numbers and count as unknown" in note.why
    assert feature.encode(pa.array(["old", None])).tolist() == [5, 4]


def test_infinite_numbers_fall_into_the_outer_bins() -> None:
    values = [*np.arange(100) / 2, float("inf"), float("-inf")]
    feature, _ = learn(values, bins=4)
    assert feature.encode(pa.array([float("-inf"), float("inf")])).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": 1}, "bins=1 is too few: 2 is the least"),
        ({"binning": "foo"}, "binning 'foo' is not quantile or width"),
        ({"max_modalities": 1}, "max_modalities=1 is too few"),
        ({"min_modality_count": 0}, "min_modality_count=0 is too few"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Coding(**options)


# --- target encodings ------------------------------------------------------------------------------


def test_values_alike_in_count_and_rate_share_a_code() -> None:
    rng = np.random.default_rng(0)
    counts = np.repeat([1000, 10], [20, 2000])
    rate = np.where(np.arange(2020) % 2, 0.05, 0.6)
    positives = rng.binomial(counts, rate)
    feature = learn_encoding("s", [f"v{i}" for i in range(2020)], counts, positives, True, 21)
    codes = np.array(feature.codes)
    assert feature.n_modalities <= 22
    assert not (set(codes[:20]) & set(codes[20:])), "common and rare values were mixed"
    assert not (set(codes[:20:2]) & set(codes[1:20:2])), "high and low rates were mixed"
    assert codes.min() >= 1, "the first code is for values never seen"
    assert len(set(feature.modalities)) == feature.n_modalities
    # Within a code the true rates are closer than overall: the encoding tells something.
    within = sum(counts[codes == c].sum() * np.var(rate[codes == c]) for c in set(codes)) / counts.sum()
    assert within < np.var(rate) / 2


@given(
    st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1)), min_size=1, max_size=60),
    st.integers(2, 200),
)
def test_an_encoding_has_about_as_many_codes_as_asked_and_none_is_empty(
    values: list[tuple[int, float]], modalities: int
) -> None:
    counts = np.array([n for n, _ in values], np.int64)
    positives = np.array([int(n * r) for n, r in values], np.int64)
    feature = learn_encoding("s", [str(i) for i in range(len(values))], counts, positives, False, modalities)
    assert feature.n_modalities <= max(modalities, 2)
    assert set(feature.codes) == set(range(1, feature.n_modalities))


# --- what is left out ------------------------------------------------------------------------------


def _people() -> dict[str, Any]:
    n = 200
    moments = [dt.datetime(2024, 1, 1) + dt.timedelta(minutes=7 * (i % 40)) for i in range(n)]
    return {
        "name": [f"person {i}" for i in range(n)],
        "user_id": [3 * i + 1 for i in range(n)],
        "when": moments,
        "income": [1000.5 + 17 * i for i in range(n)],
        "colour": ["red", "blue"] * (n // 2),
        "y": [0, 1, 1, 0] * (n // 4),
    }


def test_identifiers_and_times_are_left_out_and_that_is_said() -> None:
    found = agglearn.aggregate_split(_people(), "y")
    assert found.train.schema.names == ("income", "colour")
    left = {note.name: note.why for note in found.notes if note.kind == "left out"}
    assert set(left) == {"name", "user_id", "when"}
    assert "200 values in 200 records, an identifier" in left["name"]
    assert left["when"].startswith("a time")
    told = [str(warning) for warning in found.document().warnings]
    assert any(t.startswith("user_id is left out") and "categorical=user_id" in t for t in told)


def test_an_engine_leaves_them_out_too() -> None:
    connection = duckdb.connect()
    connection.register("people", pa.table(_people()))
    assert agglearn.aggregate(connection.table("people"), "y").schema.names == ("income", "colour")


def test_what_is_named_stays() -> None:
    people = _people()
    assert "name" in agglearn.aggregate(people, "y", categorical=["name"]).schema.names
    assert agglearn.aggregate(people, "y", features=["when", "colour"]).schema.names == ("when", "colour")


def test_an_identifier_is_known_though_not_all_of_its_values_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 30,000 texts some hundreds are kept; the error of the estimate is 1.6 %."""
    monkeypatch.setattr(surveys, "KEPT", 1000)
    n = 30_000
    whole = ColumnSurvey("id")
    halves = [ColumnSurvey("id"), ColumnSurvey("id")]
    repeated = ColumnSurvey("often")
    for start in range(0, n, 2500):
        texts = pa.array([f"u{i}" for i in range(start, start + 2500)])
        whole.add(texts)
        halves[start >= n // 2].add(texts)
        repeated.add(pa.array([f"v{i % 6000}" for i in range(start, start + 2500)]))
    halves[0].merge(halves[1])
    assert whole.n_distinct <= 2000
    for survey, there_were in ((whole, n), (halves[0], n), (repeated, 6000)):
        assert abs(survey.n_seen / there_were - 1) < 0.08  # five standard errors
    assert "an identifier" in (why_left_out(whole, Coding()) or "")
    assert why_left_out(repeated, Coding()) is None


def test_records_that_are_nothing_but_identifiers_are_refused() -> None:
    people = {"name": _people()["name"], "y": _people()["y"]}
    with pytest.raises(InputError, match="no feature is left: column 'name' has 200 values in 200 records"):
        agglearn.aggregate(people, "y")


@pytest.mark.parametrize("kind", ["uint8", "int32", "int64", "uint64"])
@pytest.mark.parametrize("reach", [20, 10_000_000])
def test_integers_are_counted_whatever_their_width_and_reach(kind: str, reach: int) -> None:
    """Near ones are looked up and far ones are not: both are what numpy counts."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, min(reach, np.iinfo(kind).max), 3_000).astype(kind)
    survey = ColumnSurvey("x")
    for part in np.array_split(numbers, 4):
        survey.add(pa.array(part))
    values, counts = np.unique(numbers, return_counts=True)
    texts, found = survey.texts()
    assert (survey.value_type, survey.rows, survey.missing) == ("integer", 3_000, 0)
    assert texts == [str(value) for value in values]
    np.testing.assert_array_equal(found, counts)
