"""A schema is written, shown, checked and edited without a record being read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agglearn
from agglearn.errors import SchemaError
from tests.conftest import Cli


@pytest.fixture
def made(tmp_path: Path, run_cli: Cli) -> Path:
    path = tmp_path / "schema.json"
    run = run_cli(
        "schema", "new", "--label", "click", "--positive", "yes", "--categorical", "colour=red,blue",
        "--categorical", "size=1,2.0,3", "--numeric", "age=20,40", "--missing", "age,colour", "--other",
        "colour", "-o", path,
    )  # fmt: skip
    assert run.code == 0, run.err
    return path


def test_a_schema_is_written_from_what_is_known_of_the_columns(made: Path) -> None:
    schema = agglearn.load_schema(made)
    assert schema.names == ("colour", "size", "age")
    assert schema.feature("colour").modalities == ("red", "blue", "(other)", "(missing)")
    assert schema.feature("size").modalities == ("1", "2", "3")
    assert schema.feature("age").modalities == ("< 20", "[20, 40)", "≥ 40", "(missing)")
    assert schema.labels == (agglearn.Label("click", "yes"),)


def test_it_codes_records_and_writes_queries(made: Path, tmp_path: Path, run_cli: Cli) -> None:
    records = {"colour": ["red", "mauve"], "size": [1, 3], "age": [50.0, None], "click": ["yes", "no"]}
    data = agglearn.aggregate(records, "click", schema=made, positive="yes")
    assert data.table("colour").counts.tolist() == [1, 0, 1, 0]
    run = run_cli("sql", made, "--table", "events")
    assert (run.code, run.out.count("GROUP BY")) == (0, 3)


def test_it_is_shown(made: Path, run_cli: Cli) -> None:
    run = run_cli("schema", "show", made)
    assert run.code == 0
    assert "< 20, [20, 40), ≥ 40, (missing)" in run.out
    assert run_cli("schema", "show", made, "--json").json["schema"]["labels"][0]["name"] == "click"


def test_it_is_checked_alone_and_against_another(made: Path, tmp_path: Path, run_cli: Cli) -> None:
    assert run_cli("schema", "check", made).code == 0
    other = tmp_path / "other.json"
    run = run_cli("schema", "edit", made, "--numeric", "age=30", "--drop", "size", "-o", other)
    assert run.code == 0
    run = run_cli("schema", "check", made, "--same-as", other, "--json")
    assert run.code == 2
    assert run.json["problems"] == ["size is in one of them only", "age is coded in another way"]
    assert run_cli("schema", "check", made, "--same-as", made).code == 0


def test_it_is_edited(made: Path, tmp_path: Path, run_cli: Cli) -> None:
    target = tmp_path / "edited.json"
    run = run_cli(
        "schema", "edit", made, "--rename", "colour=hue", "--drop", "age", "--categorical", "shop=a,b",
        "--label", "sale", "-o", target,
    )  # fmt: skip
    assert run.code == 0, run.err
    schema = agglearn.load_schema(target)
    assert schema.names == ("hue", "size", "shop")
    assert schema.labels == (agglearn.Label("sale"),)
    assert agglearn.load_schema(made).names == ("colour", "size", "age")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["new", "--label", "y", "-o", "s.json"], "no feature is told"),
        (["new", "--label", "y", "--categorical", "x", "-o", "s.json"], "not of the form colour=red,blue"),
        (["new", "--label", "y", "--numeric", "x=a", "-o", "s.json"], "is not COLUMN=NUMBER"),
        (["new", "--label", "y", "--numeric", "x=2,1", "-o", "s.json"], "finite and increasing"),
        (["new", "--label", "y", "--categorical", "x=a,a", "-o", "s.json"], "lists one of its values twice"),
        (["new", "--label", "x", "--categorical", "x=a,b", "-o", "s.json"], "column 'x' stands twice"),
        (["new", "--label", "y", "--categorical", "x=a", "-o", "s.txt"], "must end in .json"),
        (
            ["new", "--label", "y", "--numeric", "x=1", "--other", "x", "-o", "s.json"],
            "only a column of categories",
        ),
        (["new", "--label", "y", "--numeric", "x=1", "--missing", "z", "-o", "s.json"], "is called 'z'"),
        (["show", "nowhere.json"], "nowhere.json does not exist"),
        (["edit", "nowhere.json", "-o", "s.json"], "nowhere.json does not exist"),
    ],
)
def test_a_mistake_is_one_line(
    args: list[str], message: str, tmp_path: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_cli("schema", *args)
    assert run.code == 2
    assert message in run.err
    assert run.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_features_are_easy_to_build_by_hand() -> None:
    schema = agglearn.make_schema(
        [
            agglearn.categorical("member", [True, False], missing=True),
            agglearn.categorical("rooms", [1, 2.0, "3"], other=True),
            agglearn.numeric("age", [30, 60], low=18, high=99, integer=True),
        ],
        "click",
    )
    assert schema.cards == (3, 4, 3)
    records = {"member": ["TRUE", None], "rooms": [2, 9], "age": [18, 75], "click": [0, 1]}
    data = agglearn.aggregate(records, "click", schema=schema)
    assert data.table("rooms").counts.tolist() == [0, 1, 0, 1]
    assert json.loads(json.dumps(schema.to_json())) == schema.to_json()
    with pytest.raises(SchemaError, match="twice"):
        agglearn.categorical("x", ["1", 1.0])
    with pytest.raises(SchemaError, match="has no value"):
        agglearn.categorical("x", [])
