"""A feature's rule is all that anyone needs to code values: two shapes, whatever the kind."""

from __future__ import annotations

import ast
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agglearn.schema.features import Binned, Categorical, Cut, Encoded, Feature
from agglearn.schema.rules import Cuts, LookUp, Rule
from agglearn.schema.values import key
from tests.conftest import REPOSITORY

texts = st.sampled_from(["a", "b", "c", "d", "(other)", "1", "2.5", ""])
vocabularies = st.lists(texts, unique=True, max_size=5).map(tuple)
categories = st.builds(
    Categorical, name=st.just("f"), missing=st.booleans(), values=vocabularies, other=st.booleans()
)
encodings = vocabularies.flatmap(
    lambda values: st.builds(
        Encoded,
        name=st.just("f"),
        missing=st.booleans(),
        groups=st.just(("never seen", "rare", "common")),
        values=st.just(values),
        codes=st.tuples(*(st.integers(0, 2) for _ in values)),
    )
)
bins = st.builds(
    Binned,
    name=st.just("f"),
    missing=st.booleans(),
    cuts=st.lists(st.tuples(st.integers(-2, 3), st.booleans()), unique=True).map(
        lambda cuts: tuple(Cut(value / 2, after) for value, after in sorted(cuts))
    ),
    low=st.just(-1.0),
    high=st.just(2.0),
)


def by_hand(rule: Rule, value: str | None) -> int:
    """The rule of a text, as any language would have it."""
    if value is None:
        return rule.missing
    if isinstance(rule, LookUp):
        if value in rule.codes:
            return rule.codes[value]
        # A number is one value however it is written, unless the vocabulary tells two writings apart.
        alike = [
            code for text, code in rule.codes.items() if key(text) is not None and key(text) == key(value)
        ]
        return alike[0] if len(alike) == 1 else rule.default
    try:
        number = float(value)
    except ValueError:
        return rule.unknown
    if math.isnan(number):
        return rule.missing
    return sum(number > cut.value if cut.after else number >= cut.value for cut in rule.cuts)


@given(
    st.one_of(categories, encodings, bins),
    st.lists(st.one_of(st.none(), texts, st.sampled_from(["0", "0.5", "-1", "1.0", "nan", "7"])), min_size=1),
)
def test_a_feature_codes_values_as_its_rule_says(feature: Feature, values: list[str | None]) -> None:
    rule = feature.rule
    codes = feature.encode(pa.array(values, pa.string())).tolist()
    assert codes == [by_hand(rule, v) for v in values]
    assert all(0 <= code <= feature.n_modalities for code in codes)


def test_a_rule_says_in_plain_data_what_a_feature_does() -> None:
    colour = Categorical("colour", True, ("blue", "red"), other=True)
    assert colour.rule == LookUp({"blue": 0, "red": 1}, default=2, missing=3)
    size = Categorical("size", False, ("38", "40"), "integer")
    assert size.rule == LookUp({"38": 0, "40": 1}, default=2, missing=2, value_type="integer")
    site = Encoded("site", False, ("never seen", "rare"), ("a.com",), (1,))
    assert site.rule == LookUp({"a.com": 1}, default=0, missing=2)
    age = Binned("age", True, (Cut(0.0, after=True), Cut(20.0)), 0, 99)
    assert age.rule == Cuts((Cut(0.0, after=True), Cut(20.0)), missing=3, unknown=4)


@pytest.mark.parametrize(("codes", "expected"), [((1, 2), True), ((1, 1), False), ((), True)])
def test_a_look_up_knows_whether_values_share_a_code(codes: tuple[int, ...], expected: bool) -> None:
    assert LookUp(dict(zip("ab", codes, strict=False)), 0, 3).one_to_one is expected


def test_only_the_schema_knows_of_kinds_of_feature() -> None:
    kinds = {"Categorical", "Binned", "Encoded"}

    def names(node: Any) -> set[str]:
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}

    found = [
        f"{path.name}:{call.lineno}"
        for room in ("tables", "records", "sql", "aggregation", "receive")
        for path in (REPOSITORY / "src" / "agglearn" / room).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and "isinstance" in names(call.func)
        if kinds & names(call.args[1])
    ]
    assert not found


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(-50, 50), st.booleans()), unique=True, max_size=6),
    st.sampled_from([pa.int8(), pa.int32(), pa.int64()]),
)
def test_integers_have_the_bins_that_the_same_numbers_have(
    numbers: list[int], cuts: list[tuple[int, bool]], kind: Any
) -> None:
    rule = Cuts(tuple(Cut(v / 2, after) for v, after in sorted(cuts)), missing=90, unknown=91)
    found = rule.encode(pa.array(numbers, kind))
    assert found.tolist() == rule.encode(pa.array([float(n) for n in numbers])).tolist()
