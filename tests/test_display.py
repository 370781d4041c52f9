"""What values show of themselves fits a terminal, says the sizes, and is safe in a notebook."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import agglearn
from agglearn import AggregatedData, Binned, Categorical, Cut, Encoded, Label, Noise, Schema, Table
from agglearn.schema.features import Feature
from agglearn.tables.cells import HashedCells
from tests.records import make_records

WIDEST, TALLEST = 160, 15


def test_tables_say_how_many_there_are_and_of_what() -> None:
    data = agglearn.aggregate({"x": ["a", "b", "b"], "z": ["u", "u", "v"], "y": [1, 0, 1]}, "y")
    assert repr(data) == "<AggregatedData: 3 records (2 y) in 1 table of 2 features, 4 cells>"
    assert repr(data.table("x", "z")) == "<Table x × z: 2 × 2 cells, 3 records, 2 positive>"
    noisy = replace(data.table("x", "z"), noise=Noise("gaussian", 17), measured=np.eye(2, dtype=bool))
    whole = replace(data, tables={("x", "z"): noisy}, absent="suppressed", floor=10, split={"part": "valid"})
    assert repr(noisy) == (
        "<Table x × z: 2 × 2 cells, 2 of them measured, 3 records, 2 positive, noise gaussian:17>"
    )
    assert repr(whole) == (
        "<AggregatedData: 3 records (2 y) in 1 table of 2 features, 4 cells; noise gaussian:17; "
        "absent cells are suppressed below 10; part 'valid' of a split>"
    )
    hashed = Table(("x", "z"), np.ones(5), np.ones((2, 5)), cells=HashedCells(5))
    assert repr(hashed) == "<Table x × z: 5 buckets, 5 records, 5 and 5 positive>"


def test_records_with_an_unknown_value_are_counted_in_what_a_table_shows() -> None:
    table = Table(("x",), np.array([1, 2]), np.array([[1, 0]]), unknown=np.array([4, 3]))
    assert repr(table) == "<Table x: 2 cells, 7 records, 4 positive>"


@pytest.mark.parametrize(
    "feature",
    [
        Categorical("colour", False, ("red", "it's"), other=True),
        Binned("age", True, (Cut(1.5), Cut(2.0, after=True)), 0, 9),
        Encoded("site", False, ("never seen", "g"), ("a",), (1,)),
    ],
)
def test_a_short_feature_shows_the_python_that_makes_it(feature: Feature) -> None:
    names = {"Categorical": Categorical, "Binned": Binned, "Encoded": Encoded, "Cut": Cut}
    assert eval(repr(feature), names) == feature


def test_a_long_feature_shows_its_beginning() -> None:
    many = Categorical("colour", False, tuple(f"colour {i}" for i in range(5000)))
    assert repr(many) == "<Categorical 'colour': 5,000 modalities, 'colour 0', 'colour 1', …>"


def test_a_schema_lists_its_first_features() -> None:
    features = tuple(Categorical(f"f{i}", False, ("a", "b")) for i in range(12))
    lines = repr(Schema(features, (Label("y"), Label("z")))).splitlines()
    assert lines[0] == "<Schema of 12 features, labels 'y', 'z'>"
    assert lines[1] == "  f0  categorical      2 modalities"
    assert lines[-1] == "  … and 2 more"


def _large() -> AggregatedData:
    long = "a very long name " * 20
    values = tuple(f"{i} {long}" for i in range(300))
    features = tuple(Categorical(f"{i} {long}\n", False, values) for i in range(40))
    schema = Schema(features, tuple(Label(f"{k} {long}") for k in range(9)))
    tables: dict[tuple[str, ...], Table] = {
        (f.name,): Table((f.name,), np.ones(300), np.ones((9, 300)), noise=Noise("laplace", 1 + i))
        for i, f in enumerate(features)
    }
    return AggregatedData(schema, tables, 300, (1,) * 9)


def test_whatever_is_shown_fits_a_terminal() -> None:
    data = _large()
    table = next(iter(data.tables.values()))
    parts = agglearn.aggregate_split(make_records(), "bought", positive="yes", split={"valid": 0.3})
    for value in (data, table, data.schema, data.schema.features[0], parts):
        lines = repr(value).splitlines()
        assert len(lines) <= TALLEST
        assert max(len(line) for line in lines) <= 2 * WIDEST


class _Texts(HTMLParser):
    """The texts of a page, its tags balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag in ("table", "caption", "thead", "tbody", "tr", "th", "td")
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_notebook_shows_a_small_table_and_runs_nothing() -> None:
    bad = "<script>alert('x')</script>"
    data = agglearn.aggregate({bad: ["<b>", "&"] * 3, "y": [0, 1] * 3}, "y")
    for value in (data, data.schema):
        page = _Texts()
        page.feed(value._repr_html_())
        assert not page.open
        assert bad in page.texts
    for value in (_large(), _large().schema):
        assert len(value._repr_html_()) < 10_000
