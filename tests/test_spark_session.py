"""A Spark session comes up, or one line says why not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import agglearn
from agglearn.errors import AgglearnError, InputError, MissingExtraError
from agglearn.spark import session as spark_session
from agglearn.spark.session import is_frame, open_session, parse_conf, require_java, require_package


def _java_that_says(folder: Path, words: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{words}' >&2\n")
    program.chmod(0o755)
    return folder


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtraError, match=r"agglearn\[spark\]"):
        open_session()


def test_without_java_one_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgglearnError, match="no java was not found: install a JDK of version 17 or later"):
        require_java()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ('openjdk version "1.8.0_402"', "is of version 8"),
        ('openjdk version "11.0.22" 2024-01-16', "is of version 11"),
        ("a program of another kind", "does not say its version"),
    ],
)
def test_a_java_that_is_too_old_is_named_with_its_version(
    words: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java_that_says(tmp_path, words)))
    with pytest.raises(AgglearnError, match=reason):
        require_java()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_is_new_enough_is_taken(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java_that_says(tmp_path, f'openjdk version "{version}"')))
    require_java()


def test_settings_are_words_with_an_equals_sign() -> None:
    assert parse_conf(["spark.a=1", "spark.b=x=y", "spark.c="]) == {
        "spark.a": "1",
        "spark.b": "x=y",
        "spark.c": "",
    }
    for word in ("spark.a", "=1", ""):
        with pytest.raises(InputError, match="is not key=value"):
            parse_conf([word])


def test_the_session_at_work_is_used_and_another_master_refused(spark: Any) -> None:
    assert open_session() is spark
    assert open_session(spark.sparkContext.master) is spark
    with pytest.raises(InputError, match="a Spark session is at work on local-cluster"):
        open_session("local[3]")
    with pytest.raises(InputError, match=r"spark\.executor\.memory is not '9g'"):
        open_session(conf={"spark.executor.memory": "9g"})


def test_executors_run_this_package(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    require_package(spark)
    monkeypatch.setattr(agglearn, "__version__", "9.9")
    with pytest.raises(AgglearnError, match=r"executors have agglearn .*, and this is 9\.9"):
        require_package(spark)


def _absent(_: int) -> str:
    raise ModuleNotFoundError("No module named 'numba'")


def test_an_executor_without_a_package_is_told_of(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "_package_version", _absent)
    monkeypatch.setattr(_absent, "__module__", "__main__")  # executors do not have the tests
    with pytest.raises(AgglearnError, match="executors have no numba: install agglearn"):
        require_package(spark)


def test_frames_are_told_from_other_data(spark: Any) -> None:
    assert is_frame(spark.range(1))
    assert not is_frame(pa.table({"x": [1]}))
    assert not is_frame(None)
