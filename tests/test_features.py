"""How raw values become codes and back, whatever type carries them."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agglearn.errors import InputError, SchemaError
from agglearn.schema.columns import as_numbers, as_text
from agglearn.schema.features import Binned, Categorical, Cut, Encoded, Feature
from agglearn.schema.schema import Label, Schema

RNG = np.random.default_rng(0)


def codes(feature: Feature, values: Any) -> list[int]:
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    found: list[int] = feature.encode(array).tolist()
    return found


# --- canonical text --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        pytest.param(pa.array([5, None, -3], pa.int8()), ["5", None, "-3"], id="integers"),
        pytest.param(pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"], id="large unsigned"),
        pytest.param(pa.array([5.0, float("nan"), None]), ["5", None, None], id="integers with gaps"),
        pytest.param(pa.array([0.5, 123456789012.0, 5.0]), ["0.5", "123456789012", "5"], id="floats"),
        pytest.param(pa.array([0.1], pa.float32()), [str(float(np.float32(0.1)))], id="narrow floats"),
        pytest.param(pa.array([True, False]), ["true", "false"], id="booleans"),
        pytest.param(pa.array([dt.date(2024, 1, 31)]), ["2024-01-31"], id="dates"),
        pytest.param(
            pa.array([dt.datetime(2024, 1, 31), dt.datetime(2024, 1, 31, 9, 5, 0, 250_000)]),
            ["2024-01-31 00:00:00", "2024-01-31 09:05:00.25"],
            id="timestamps",
        ),
        pytest.param(
            pa.array([0, 1_500_000], pa.timestamp("us", tz="Asia/Kolkata")),
            ["1970-01-01 05:30:00+0530", "1970-01-01 05:30:01.5+0530"],
            id="zoned",
        ),
        pytest.param(
            pa.array([dt.datetime(2024, 1, 31, 9, 5)], pa.timestamp("ns")), ["2024-01-31 09:05:00"], id="ns"
        ),
        pytest.param(pa.array([dt.timedelta(seconds=1)]), ["1000000"], id="durations"),
        pytest.param(pa.array([dt.time(9, 5)]), ["09:05:00"], id="times of day"),
        pytest.param(pa.array([Decimal("1.50"), Decimal("2.00")]), ["1.5", "2"], id="decimals"),
        pytest.param(pa.array(["é", None, " a"]), ["é", None, " a"], id="text"),
        pytest.param(pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"], id="dictionary"),
        pytest.param(pa.array(["a"], pa.string_view()), ["a"], id="text view"),
    ],
)
def test_the_text_of_a_value_does_not_depend_on_the_type_that_carries_it(
    array: Any, expected: list[str | None]
) -> None:
    assert as_text(array).to_pylist() == expected


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_the_text_of_a_number_does_not_depend_on_its_neighbours(values: list[float]) -> None:
    together = as_text(pa.array(values)).to_pylist()
    assert together == [as_text(pa.array([v])).to_pylist()[0] for v in values]
    assert [float(t) for t in together] == values


def test_text_is_read_as_numbers_and_what_is_none_is_marked() -> None:
    numbers, bad = as_numbers(pa.array([" 1.5", "-2e3", "x", None, "12,5", "+4"]))
    np.testing.assert_array_equal(numbers, [1.5, -2000, np.nan, np.nan, np.nan, 4])
    assert bad.tolist() == [False, False, True, False, True, False]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, 3], pa.int16()),
        pa.array([1, None, 3], pa.decimal128(5)),
        pa.array(["1", None, "3"]).dictionary_encode(),
        pa.array(["1", None, "3"], pa.string_view()),
        pa.array([1.0, float("nan"), 3.0]),
        pa.chunked_array([[1, None], [3]]),
    ],
    ids=lambda a: str(a.type),
)
def test_numbers_are_the_same_from_every_type(array: Any) -> None:
    numbers, bad = as_numbers(array)
    np.testing.assert_array_equal(numbers, [1, np.nan, 3])
    assert not bad.any()


# --- categories ------------------------------------------------------------------------------------


def test_a_category_has_its_place_and_others_are_unknown() -> None:
    colour = Categorical(name="c", values=("blue", "red"), missing=False)
    assert codes(colour, ["red", "blue", "green", None]) == [1, 0, 2, 2]
    assert colour.n_modalities == 2


def test_a_column_of_nothing_is_missing_whatever_its_type() -> None:
    for column in (pa.nulls(2), pa.array([None, None], pa.string()), pa.array([np.nan, None])):
        for feature in EVERY_KIND.features:
            assert codes(feature, column) == [feature.missing_code] * 2


def test_other_and_missing_have_modalities_of_their_own() -> None:
    colour = Categorical(name="c", values=("blue", "red"), other=True, missing=True)
    assert colour.modalities == ("blue", "red", "(other)", "(missing)")
    assert codes(colour, ["red", "green", None, "blue"]) == [1, 2, 3, 0]


def test_a_value_called_like_a_special_modality_is_told_apart() -> None:
    odd = Categorical(name="c", values=("(missing)", "(other)", "(other)'"), other=True, missing=True)
    assert len(set(odd.modalities)) == 5
    assert codes(odd, ["(missing)", "(other)", None, "x"]) == [0, 1, 4, 3]


@pytest.mark.parametrize(
    ("values", "array"),
    [
        (("-1", "0", "7"), pa.array([7, -1, 0, 8, None], pa.int32())),
        (("-1", "0", "7"), pa.array([7, -1, 0, 8, None], pa.float64())),
        (("-1", "0", "7"), pa.array(["7", "-1", "0", "8", None])),
        (("-1", "0", "7"), pa.array(["7", "-1", "0", "8", None]).dictionary_encode()),
    ],
    ids=["integer", "float", "text", "dictionary"],
)
def test_integer_categories_are_found_in_every_type(values: tuple[str, ...], array: Any) -> None:
    feature = Categorical(name="c", values=values, value_type="integer", missing=True)
    assert codes(feature, array) == [2, 0, 1, 4, 3]


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, unique=True),
    st.lists(st.integers(-(2**63), 2**63 - 1)),
)
def test_integers_have_the_code_of_their_text(vocabulary: list[int], column: list[int]) -> None:
    feature = Categorical(name="c", values=tuple(map(str, vocabulary)), value_type="integer", missing=False)
    records = [*vocabulary, *column]
    expected = [vocabulary.index(v) if v in vocabulary else len(vocabulary) for v in records]
    assert codes(feature, pa.array(records, pa.int64())) == expected


def test_unsigned_integers_above_the_signed_range_keep_their_codes() -> None:
    high = 2**64 - 5
    feature = Categorical(name="c", values=(str(high), str(high + 1)), value_type="integer", missing=False)
    assert codes(feature, pa.array([high + 1, high, 3], pa.uint64())) == [1, 0, 2]
    negative = Categorical(name="c", values=("-5",), value_type="integer", missing=False)
    assert codes(negative, pa.array([high], pa.uint64())) == [1]


def test_booleans_written_by_any_tool_are_the_same_categories() -> None:
    feature = Categorical(name="c", values=("false", "true"), value_type="boolean", missing=True)
    assert codes(feature, [True, False, None]) == [1, 0, 2]
    assert codes(feature, ["True", "false", "FALSE", None, "yes"]) == [1, 0, 0, 2, 3]


@pytest.mark.parametrize(
    ("value_type", "array"),
    [
        ("string", pa.array(["b", "a", None])),
        ("integer", pa.array([3, -1, None])),
        ("float", pa.array([0.25, 3.0, None])),
        ("boolean", pa.array([True, False, None])),
        ("date", pa.array([dt.date(2024, 2, 29), dt.date(1969, 1, 1), None])),
        ("timestamp", pa.array([dt.datetime(2024, 2, 29, 1), dt.datetime(2024, 3, 1), None])),
    ],
)
def test_categories_are_given_back_in_their_own_type(value_type: str, array: Any) -> None:
    texts = tuple(as_text(array.drop_null()).to_pylist())
    feature = Categorical(name="c", values=texts, value_type=value_type, missing=True)
    back = feature.decode(feature.encode(array), RNG)
    assert back.type == array.type
    assert back.to_pylist() == array.to_pylist()


@pytest.mark.parametrize(
    ("value_type", "array"),
    [
        ("time", pa.array([dt.time(1, 2), dt.time(23, 59, 59, 5), None])),
        ("timestamp", pa.array([0, 1, None], pa.timestamp("s", tz="Europe/Paris"))),
    ],
)
def test_categories_whose_type_cannot_be_read_from_text_come_back_as_text(
    value_type: str, array: Any
) -> None:
    texts = tuple(as_text(array.drop_null()).to_pylist())
    feature = Categorical(name="c", values=texts, value_type=value_type, missing=True)
    back = feature.decode(feature.encode(array), RNG)
    assert back.to_pylist() == [*texts, None]
    assert codes(feature, back) == codes(feature, array) == [0, 1, 2]


def test_more_modalities_than_codes_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"'c' has 1,000,001 modalities.*with max_modalities"):
        Categorical(name="c", values=tuple(map(str, range(1_000_001))), missing=False)


# --- bins ------------------------------------------------------------------------------------------


def test_a_value_with_a_bin_of_its_own_is_alone_there() -> None:
    gain = Binned(name="g", cuts=(Cut(0), Cut(0, after=True), Cut(100)), low=-5, high=900, missing=True)
    assert gain.modalities == ("< 0", "0", "(0, 100)", "≥ 100", "(missing)")
    assert codes(gain, [-1.0, 0.0, 5e-324, 99.9, 100.0, None, float("inf")]) == [0, 1, 2, 2, 3, 4, 3]


def test_text_that_is_no_number_is_unknown_not_missing() -> None:
    age = Binned(name="a", cuts=(Cut(30),), low=0, high=99, missing=True)
    assert codes(age, ["29", " 30 ", "old", None, "nan"]) == [0, 1, 3, 2, 2]


def test_a_number_that_never_varies_has_one_bin() -> None:
    flat = Binned(name="f", cuts=(), low=3, high=3, missing=False)
    assert flat.modalities == ("any",)
    assert codes(flat, [3.0, -10.0]) == [0, 0]


@pytest.mark.parametrize(
    "cuts", [(Cut(2), Cut(1)), (Cut(1), Cut(1)), (Cut(1, after=True), Cut(1)), (Cut(float("nan")),)]
)
def test_edges_that_do_not_increase_are_refused(cuts: tuple[Cut, ...]) -> None:
    with pytest.raises(SchemaError, match="'f': bin edges must be finite and increasing"):
        Binned(name="f", cuts=cuts, low=0, high=1, missing=False)


cut_lists = st.lists(
    st.tuples(st.integers(-50, 50).map(float) | st.floats(-50, 50), st.booleans()), max_size=8, unique=True
).map(lambda cuts: tuple(Cut(value, after) for value, after in sorted({(v + 0.0, a) for v, a in cuts})))


@given(cut_lists, st.lists(st.floats(allow_nan=False)))
def test_the_code_of_a_number_is_how_many_cuts_lie_below_it(
    cuts: tuple[Cut, ...], values: list[float]
) -> None:
    feature = Binned(name="f", cuts=cuts, low=-60, high=60, missing=False)
    values = [*values, *(c.value for c in cuts)]
    below = [sum(v > c.value or (v == c.value and not c.after) for c in cuts) for v in values]
    assert codes(feature, pa.array(values, pa.float64())) == below
    assert len(set(feature.modalities)) == len(cuts) + 1


@given(cut_lists, st.floats(-100, 100), st.floats(0, 100), st.booleans(), st.integers(0, 2**32 - 1))
@example((Cut(-5e-324, after=True), Cut(0.0)), 0.0, 0.0, False, 0)
@settings(max_examples=200)
def test_a_number_drawn_for_a_code_has_that_code(
    cuts: tuple[Cut, ...], low: float, span: float, missing: bool, seed: int
) -> None:
    feature = Binned(name="f", cuts=cuts, low=low, high=low + span, missing=missing)
    hollow = {  # no number lies between two that follow one another
        i + 1
        for i, (a, b) in enumerate(pairwise(cuts))
        if a.after and not b.after and b.value == np.nextafter(a.value, np.inf)
    }
    wanted = np.array([c for c in range(feature.n_modalities) if c not in hollow] * 5, np.uint16)
    drawn = feature.decode(wanted, np.random.default_rng(seed))
    assert feature.encode(drawn).tolist() == wanted.tolist()


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=6, unique=True), st.integers(0, 2**32 - 1))
def test_a_whole_number_drawn_for_a_code_has_that_code(edges: list[int], seed: int) -> None:
    cuts = tuple(Cut(float(e), after=e % 2 == 0) for e in sorted(edges))
    feature = Binned(name="f", cuts=cuts, low=-3, high=3, integer=True, missing=True)
    hollow = {  # no whole number lies in (2, 3) and its like
        i + 1 for i, (a, b) in enumerate(pairwise(cuts)) if a.after and not b.after and b.value == a.value + 1
    }
    wanted = np.array([c for c in range(feature.n_modalities) if c not in hollow] * 5, np.uint16)
    drawn = feature.decode(wanted, np.random.default_rng(seed))
    assert drawn.type == pa.int64()
    assert feature.encode(drawn).tolist() == wanted.tolist()


def test_every_whole_number_of_the_range_can_be_drawn() -> None:
    feature = Binned(name="f", cuts=(Cut(3),), low=1, high=5, integer=True, missing=False)
    drawn = feature.decode(np.repeat([0, 1], 200).astype(np.uint16), RNG)
    assert sorted(set(drawn.to_pylist())) == [1, 2, 3, 4, 5]


# --- target encodings ------------------------------------------------------------------------------


def test_values_of_an_encoding_share_codes_and_strangers_have_the_first() -> None:
    site = Encoded(
        name="s",
        groups=("never seen", "rare", "common"),
        values=("a", "b", "c"),
        codes=(2, 1, 2),
        missing=True,
    )
    assert codes(site, ["a", "b", "c", "zzz", None]) == [2, 1, 2, 0, 3]
    drawn = site.decode(np.array([2] * 50 + [1, 0, 3], np.uint16), RNG).to_pylist()
    assert set(drawn[:50]) == {"a", "c"}
    assert drawn[50] == "b"
    assert drawn[52] is None
    assert codes(site, drawn[51:52]) == [0]


# --- labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, 0, 1]),
        pa.array([1.0, 0.0, 1.0]),
        pa.array([True, False, True]),
        pa.array(["1", "0", "1"]),
        pa.array(["True", "FALSE", " true "]),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["1", "0", "never used"])),
    ],
    ids=lambda a: str(a.type),
)
def test_a_label_is_0_and_1_or_true_and_false_in_any_type(array: Any) -> None:
    assert Label("y").encode(array).tolist() == [1, 0, 1]


def test_the_positive_value_may_be_anything() -> None:
    assert Label("y", ">50K").encode(pa.array([" >50K", "<=50K"])).tolist() == [1, 0]
    assert Label("y", "2").encode(pa.array([2, 1, 0])).tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (pa.array([1, 0, 2]), "'y' has the value '2' in record 3, neither 0/1 nor true/false.*with positive"),
        (pa.array(["yes", "no"]), "'y' has the value 'yes'"),
        (pa.array([0.5]), "'y' has the value '0.5'"),
        (pa.array([1, None, 0]), "'y' is missing in record 2"),
        (pa.array([1.0, 0.0, float("nan")]), "'y' is missing in record 3"),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["1", None])), "missing in record 2"),
    ],
)
def test_a_label_with_anything_else_is_refused(array: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Label("y").encode(array)


# --- schemas ---------------------------------------------------------------------------------------

EVERY_KIND = Schema(
    (
        Categorical(name="two words", values=("é", 'quo"te', ""), other=True, missing=True),
        Categorical(name="select", values=("1", "20"), value_type="integer", missing=False),
        Binned(
            name="gain", cuts=(Cut(0.1), Cut(0.1, after=True), Cut(1e300)), low=0.1, high=1e301, missing=True
        ),
        Binned(name="age", cuts=(), low=3, high=3, integer=True, missing=False),
        Encoded(name="site", groups=("never seen", "g1"), values=("a", "b"), codes=(1, 1), missing=True),
    ),
    (Label("click"), Label("income", ">50K")),
)


def test_a_schema_written_as_json_and_read_again_is_the_same() -> None:
    text = json.dumps(EVERY_KIND.to_json())
    assert Schema.from_json(json.loads(text)) == EVERY_KIND


def test_a_schema_can_be_written_by_hand_with_the_least() -> None:
    document = {
        "features": [
            {"name": "colour", "kind": "categorical", "values": ["red", "blue"], "missing": False},
            {"name": "age", "kind": "numeric", "cuts": [30, 60], "missing": True},
        ],
        "labels": [{"name": "y", "positive": 2}],
    }
    schema = Schema.from_json(document)
    assert schema.cards == (2, 4)
    records = pa.table({"colour": ["blue"], "age": [60], "y": [2]})
    assert schema.encode(records).tolist() == [[1], [2]]
    assert schema.encode_labels(records).tolist() == [[1]]


def _feature(**changes: Any) -> dict[str, Any]:
    plain = {"name": "f", "kind": "categorical", "values": ["a"], "missing": False}
    return {k: v for k, v in (plain | changes).items() if v is not None}


@pytest.mark.parametrize(
    "feature",
    [
        _feature(name=None),
        _feature(kind="ordinal"),
        _feature(kind=["categorical"]),
        _feature(values=None),
        _feature(values="abc"),
        _feature(values=["a", "a"]),
        _feature(values=["a"], value_type="integer"),
        _feature(values=["1", "01"], value_type="integer"),
        _feature(value_type="complex"),
        _feature(kind="numeric", cuts=["x"]),
        _feature(kind="numeric", cuts=[[1, True, 3]]),
        _feature(kind="numeric", cuts=[3, 2]),
        _feature(kind="numeric", cuts=[1], low=float("nan")),
        _feature(kind="encoded", groups=["g"], values=["a"], codes=[1]),
        _feature(kind="encoded", groups=["g"], values=["a"], codes=[]),
        _feature(kind="encoded", groups=["g", "g"], values=["a"], codes=[0]),
        "f",
        None,
    ],
)
def test_a_schema_file_that_makes_no_sense_is_refused_by_name(feature: Any) -> None:
    document = {"features": [feature], "labels": [{"name": "y"}]}
    with pytest.raises(SchemaError, match=r"my\.json|'f'"):
        Schema.from_json(document, "my.json")


@pytest.mark.parametrize("document", [{}, {"features": []}, {"features": {}, "labels": 3}])
def test_a_document_that_is_no_schema_is_refused_by_name(document: Any) -> None:
    with pytest.raises(SchemaError, match=r"my\.json: not a schema"):
        Schema.from_json(document, "my.json")


def test_no_column_may_stand_twice_in_a_schema() -> None:
    f = Categorical(name="f", values=("a",), missing=False)
    with pytest.raises(SchemaError, match="'f' stands twice"):
        Schema((f, f), (Label("y"),))
    with pytest.raises(SchemaError, match="'f' stands twice"):
        Schema((f,), (Label("f"),))


def test_records_without_a_column_of_the_schema_are_refused() -> None:
    with pytest.raises(InputError, match="'age', 'site' is not in the records, whose columns are 'select'"):
        EVERY_KIND.select(["select", "age", "site"]).encode(pa.table({"select": [1]}))


def test_decoding_and_encoding_records_gives_the_same_codes() -> None:
    rng = np.random.default_rng(1)
    wanted = np.array([rng.integers(0, m, 300) for m in EVERY_KIND.cards], np.uint16)
    wanted[0, wanted[0] == 2] = 0  # the empty text is a value here
    drawn = EVERY_KIND.decode(wanted, rng)
    assert drawn.column_names == list(EVERY_KIND.names)
    np.testing.assert_array_equal(EVERY_KIND.encode(drawn), wanted)
