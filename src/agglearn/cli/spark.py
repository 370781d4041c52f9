"""What verbs share that run on a Spark cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agglearn.errors import InputError

if TYPE_CHECKING:
    from agglearn.model.model import Model

Master = Annotated[
    str | None,
    typer.Option(
        help="Spark's master, as local[4], yarn or spark://host:7077 (default: as Spark is set up)."
    ),
]
SparkConf = Annotated[
    list[str] | None, typer.Option(help="A setting of Spark, as spark.executor.memory=4g (repeat).")
]


def use_session(master: str | None, settings: list[str] | None, needed: bool) -> None:
    """Open the session that was asked for, before anything needs it."""
    if not needed:
        if master or settings:
            raise InputError("--master and --spark-conf are for what runs on Spark: nothing here does")
        return
    from agglearn.spark.session import open_session, parse_conf

    open_session(master, parse_conf(settings))


def on_spark(*addresses: str) -> bool:
    """Whether any of these is read or written by Spark."""
    return any(address.startswith("spark:") for address in addresses)


def sample_to(model: Model, n: int, output: str, seed: int) -> None:
    """Draw records on the cluster, and write them there."""
    from agglearn.model.synthetic import sample_frame
    from agglearn.spark.inputs import write_frame

    write_frame(sample_frame(model, n, seed=seed), output.removeprefix("spark:"))


def predict_frame(model: Model, records: list[str], output: str, kept: list[str]) -> tuple[int, Any, float]:
    """Score records where they are, and write the scores there: rows, unknown values, and seconds."""
    import numpy as np
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    from agglearn.model.transform import UNKNOWN, transform
    from agglearn.spark.inputs import open_input, write_frame
    from agglearn.spark.session import open_session, require_package

    if len(records) > 1 or not on_spark(records[0]) or not on_spark(output):
        raise InputError(
            "one input of Spark is scored to one output of Spark: predict MODEL spark:INPUT -o spark:OUTPUT"
        )
    began = time.perf_counter()
    session = open_session()
    require_package(session)
    frame = open_input(session, records[0].removeprefix("spark:"))
    scored = transform(model.schema, model.field, frame, keep=kept, unknown=True)
    seen = Observation()
    unknown = [
        sql.sum(sql.array_contains(UNKNOWN, f).cast("long")).alias(f"unknown {f}")
        for f in range(len(model.schema.names))
    ]
    counted = scored.observe(seen, sql.count(sql.lit(1)).alias("rows"), *unknown).drop(UNKNOWN)
    write_frame(counted, output.removeprefix("spark:"))
    found = seen.get
    counts = np.array([found[f"unknown {f}"] or 0 for f in range(len(unknown))], np.int64)
    return int(found["rows"]), counts, time.perf_counter() - began
