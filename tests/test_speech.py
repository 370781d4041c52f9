"""Messages name what their reader can turn: arguments for a Python user, options for a shell user."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import agglearn
from agglearn.errors import InputError
from agglearn.records.options import Coding
from agglearn.runtime.speech import option, speaking_to_shell, words
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema
from agglearn.tables.data import AggregatedData, merge
from agglearn.tables.noise import Noise
from agglearn.tables.table import Table
from tests.conftest import REPOSITORY

ROOMS = (
    "runtime",
    "report",
    "schema",
    "tables",
    "records",
    "sql",
    "aggregation",
    "privacy",
    "receive",
    "field",
    "train",
    "model",
    "judge",
    "trust",
)
RECORDS = {"x": ["a", "b", "a", "c"], "y": [1, 0, 1, 0]}


def test_an_option_is_called_as_its_reader_writes_it() -> None:
    assert option("max_modalities") == "max_modalities"
    assert option("bins", "20") == "bins=20"
    assert words(python="an argument", shell="a flag") == "an argument"
    with speaking_to_shell():
        assert option("max_modalities") == "--max-modalities"
        assert option("bins", "20") == "--bins 20"
        assert words(python="an argument", shell="a flag") == "a flag"
    assert option("bins") == "bins"


def test_the_shell_is_spoken_to_no_longer_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), speaking_to_shell():
        _ = 1 / 0
    assert option("bins") == "bins"


# --- one message, two readers ----------------------------------------------------------------------


def _tables(*values: str) -> AggregatedData:
    return agglearn.aggregate({"x": [*values], "y": [1] * len(values)}, "y")


def _too_many_values() -> None:
    Categorical(name="c", values=tuple(map(str, range(1_000_001))), missing=False)


def _several_labels() -> None:
    schema = Schema((Categorical("x", False, ("a",)),), (Label("click"), Label("sale")))
    counts = pa.array([1]).to_numpy()
    AggregatedData(
        schema, {("x",): Table(("x",), counts, counts[None].repeat(2, 0))}, 1, (1, 1)
    ).label_index()


MISTAKES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "too few bins": (lambda: Coding(bins=1), "bins=1", "--bins 1"),
    "too few buckets": (
        lambda: agglearn.aggregate(RECORDS, "y", hash_size=1),
        "hash_size=1",
        "--hash-size 1",
    ),
    "too many values": (_too_many_values, "with max_modalities", "with --max-modalities"),
    "several labels": (_several_labels, "with label", "with --label"),
    "no label": (lambda: agglearn.aggregate(RECORDS, []), "with label", "with --label"),
    "exclude nothing": (
        lambda: agglearn.aggregate(RECORDS, "y", exclude=["z"]),
        "exclude='z' names",
        "--exclude 'z' names",
    ),
    "numeric nothing": (
        lambda: agglearn.aggregate(RECORDS, "y", numeric=["z"]),
        "numeric='z' names",
        "--numeric 'z' names",
    ),
    "a label in words": (lambda: agglearn.aggregate(RECORDS, "x"), "with positive", "with --positive"),
    "no such positive": (
        lambda: agglearn.aggregate(RECORDS, "y", positive="2"),
        "which positive names",
        "which --positive names",
    ),
    "a nested column": (
        lambda: agglearn.aggregate({**RECORDS, "l": [[1]] * 4}, "y"),
        "with exclude",
        "with --exclude",
    ),
    "two schemas": (
        lambda: merge([_tables("a", "b"), _tables("c", "d")]),
        "schema=first.schema",
        "--schema FIRST.agg",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained_in_the_words_of_whoever_made_it(name: str) -> None:
    make, python, shell = MISTAKES[name]
    with pytest.raises(agglearn.AgglearnError) as told:
        make()
    assert python in str(told.value)
    assert "--" not in str(told.value)
    with speaking_to_shell(), pytest.raises(agglearn.AgglearnError) as told:
        make()
    assert shell in str(told.value)


def test_the_notes_about_columns_name_arguments_in_python(run_cli: Any, tmp_path: Path) -> None:
    table = {"visits": list(range(100)), "y": [0, 1] * 50}
    (note,) = agglearn.aggregate_split(table, "y").notes
    assert "(codes? categorical=['visits'])" in note.why
    path = tmp_path / "in.csv"
    path.write_text("visits,y\n" + "".join(f"{i},{i % 2}\n" for i in range(100)))
    run = run_cli("aggregate", path, "--label", "y", "-o", tmp_path / "out.agg")
    assert "(codes? --categorical visits)" in run.out


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Texts of a module that are not docstrings, f-strings in one piece."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {id(v) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for v in node.values}
    parts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    # words(shell=…) is where a flag may be written out.
    parts |= {
        id(n) for k in ast.walk(tree) if isinstance(k, ast.keyword) and k.arg == "shell" for n in ast.walk(k)
    }
    for node in ast.walk(tree):
        if id(node) in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(v.value) for v in node.values if isinstance(v, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.parametrize("room", ROOMS)
def test_no_text_outside_the_command_line_has_a_flag_in_it(room: str) -> None:
    found = [
        f"{path.name}:{line}: {text}"
        for path in sorted((REPOSITORY / "src" / "agglearn" / room).rglob("*.py"))
        for line, text in _texts(path)
        # A command written out whole is for the shell, whoever reads it.
        if re.search(r"(?<![\w-])--[a-z]", re.sub(r"agglearn \w+ --[a-z-]+", "", text))
    ]
    assert not found


# --- a user's mistake is a ValueError too ----------------------------------------------------------


def test_bad_input_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="is too few"):
        Coding(bins=1)
    assert issubclass(InputError, agglearn.AgglearnError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gaussian:-1", "random-rounding, mixed with a scale above 0"),
        ("cauchy:1", "noise cauchy:1 is not one of"),
        ("gaussian", "noise 'gaussian' is not LAW:SCALE"),
    ],
)
def test_a_noise_that_is_written_well_and_makes_no_sense_says_so(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Noise.parse(text)
