"""Options have one home: defaults, bounds and names are the same wherever they are given."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, dataclass, fields
from typing import Any

import pytest

import agglearn
from agglearn.aggregation.options import AggregateOptions
from agglearn.errors import InputError
from agglearn.runtime.options import as_names, at_least, with_keywords
from tests.records import make_records

TOY = {"x": ["a", "b", "a", "c"] * 5, "z": list(range(20)), "y": [1, 0, 1, 0] * 5}


@dataclass(frozen=True)
class Recipe:
    eggs: int = 2
    flour: float = 0.5


def test_options_are_given_by_keyword() -> None:
    assert with_keywords(Recipe(), {"eggs": 3}, "bake") == Recipe(eggs=3)
    assert with_keywords(Recipe(flour=1.0), {}, "bake") == Recipe(flour=1.0)


@pytest.mark.parametrize(("given", "nearest"), [("egs", "eggs"), ("flower", "flour")])
def test_an_option_that_is_none_is_refused_and_the_nearest_named(given: str, nearest: str) -> None:
    with pytest.raises(TypeError, match=rf"^bake\(\) has no option '{given}': the nearest is '{nearest}'$"):
        with_keywords(Recipe(), {given: 1}, "bake")


def test_bounds_name_the_option() -> None:
    at_least(2, eggs=2, flour=None)
    with pytest.raises(InputError, match=r"^max_eggs=1 is too small: 2 is the least$"):
        at_least(2, "small", max_eggs=1)


def test_a_text_alone_is_one_name() -> None:
    assert as_names("age") == ("age",)
    assert as_names(["age", "sex"]) == ("age", "sex")
    assert agglearn.aggregate(TOY, "y", features="x", categorical="x").schema.names == ("x",)


@pytest.mark.parametrize("function", [agglearn.aggregate, agglearn.aggregate_split])
def test_aggregate_takes_its_options_whole_or_by_keyword(function: Any) -> None:
    whole = function(TOY, "y", AggregateOptions(bins=3, tables="singles"))
    named = function(TOY, "y", bins=3, tables="singles")
    both = function(TOY, "y", AggregateOptions(bins=9, tables="singles"), bins=3)
    tables = [getattr(found, "train", found) for found in (whole, named, both)]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])
    with pytest.raises(
        TypeError, match=rf"{function.__name__}\(\) has no option 'bin': the nearest is 'bins'"
    ):
        function(TOY, "y", bin=3)


def test_a_comparison_names_the_nearest_option_too() -> None:
    with pytest.raises(TypeError, match=r"compare\(\) has no option 'bining': the nearest is 'binning'"):
        agglearn.compare(make_records(), label="bought", positive="yes", bining="width")


def test_the_defaults_of_the_command_line_are_those_of_the_options() -> None:
    from agglearn.cli.data import aggregate

    shown = inspect.signature(aggregate).parameters
    checked = 0
    for option in fields(AggregateOptions):
        if option.name in shown and option.default is not MISSING and option.default not in ((), None):
            assert shown[option.name].default == option.default, option.name
            checked += 1
    assert checked >= 6
    for name in ("bins", "max_modalities", "min_modality_count"):  # these depend on the records
        assert getattr(AggregateOptions, name) is None
        assert shown[name].default is None
