"""The steps of the two Criteo pipelines, each of which a process of its own can do.

A step finds what the steps before it left in the cache folder: the files, the tables of a stream and the
records kept from it. Only small numbers are returned.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from agglearn.datasets import CRITEO_ATTRIBUTION_FEATURES
from agglearn.datasets.criteo import ADKDD_FEATURES
from agglearn.field.layout import Layout
from agglearn.field.problem import layout_of, make_problem
from agglearn.judge.scores import nllh
from agglearn.receive import read_adkdd
from agglearn.records.first_pass import learn_schema
from agglearn.records.options import Coding, Split
from agglearn.records.roles import Columns
from agglearn.records.split import assign
from agglearn.schema.schema import Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import load_schema, save, save_schema
from agglearn.tables.scopes import parse_scopes
from agglearn.train.settings import FitSettings
from evidence.paper import criteo_files, criteo_simulated
from evidence.paper.criteo_models import (
    CLICK,
    SAMPLE,
    SEED,
    Found,
    Judges,
    Streamed,
    baselines,
    choose_field,
    encoded,
    fit_field,
    learn_encoded_schema,
    skyline,
    stream,
    tables_of,
)
from evidence.paper.criteo_simulated import AdKddSizes

_APART = {"test": 0.3, "valid": 0.02}  # of Criteo Attribution; the authors' code tests on 30 %
_RAREST = 21  # records of a value of Criteo Attribution that is not folded with the rarer ones: the authors'


@dataclass(frozen=True)
class Sizes:
    """How large everything is.

    Attributes
    ----------
    attribution_rows, attribution_modalities, adkdd
        Sizes of the simulated files.
    encode_over, encoding_modalities
        AdKDD features of more values than the first become target encodings of about the second.
    hash_size
        Tables of more cells are hashed to so many buckets.
    raw_most
        The field of the raw AdKDD tables leaves out features of more modalities.
    sample_rows
        Records that the logistic is fitted to.
    chains, iterations, logistic_iterations, naive_bayes_iterations
        How long the models are fitted.
    """

    attribution_rows: int
    attribution_modalities: int
    adkdd: AdKddSizes
    encode_over: int
    encoding_modalities: int
    hash_size: int
    raw_most: int
    sample_rows: int
    chains: int
    iterations: int
    logistic_iterations: int
    naive_bayes_iterations: int

    @property
    def settings(self) -> FitSettings:
        return FitSettings(chains=self.chains, iterations=self.iterations)


def _kept(config: Sizes, name: str) -> Streamed:
    """Where the tables and records of a data set are kept."""
    if name == "attribution":
        source = criteo_files.attribution(config.attribution_rows, config.attribution_modalities)
        folder = source.path.parent if source.simulated else criteo_simulated.home("published-attribution")
    else:
        files = criteo_files.published_adkdd()
        folder = config.adkdd.folder if files is None else criteo_simulated.home("published-adkdd")
    sizes = (config.sample_rows, config.encode_over, config.encoding_modalities, config.hash_size)
    return Streamed(folder / "-".join([name, *map(str, sizes), str(config.raw_most)]))


def _ready(config: Sizes, name: str) -> Streamed:
    """The same, made if someone has removed it."""
    kept = _kept(config, name)
    if not kept.tables.exists():
        _STREAMS[name](config)
    return kept


def _bytes(paths: list[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


# -- the files -----------------------------------------------------------------------------------


def attribution_files(config: Sizes) -> Found:
    """Find or write Criteo Attribution."""
    source = criteo_files.attribution(config.attribution_rows, config.attribution_modalities)
    return {"simulated": source.simulated, "rows": source.rows, "bytes": _bytes([source.path])}


def adkdd_files(config: Sizes) -> Found:
    """Find or write the AdKDD records."""
    files = criteo_files.adkdd(config.adkdd)
    paths = [*files.records, files.more]
    return {
        "simulated": files.simulated,
        "rows": files.rows,
        "files": len(paths),
        "bytes": _bytes(paths),
        "cards": list(config.adkdd.log.cards) if files.simulated else None,
    }


def adkdd_tables(config: Sizes) -> Found:
    """Find or write the noisy AdKDD tables."""
    files = criteo_files.adkdd(config.adkdd, tables=True)
    return {"simulated": files.simulated, "bytes": _bytes(list(files.tables()))}


# -- from files to tables ------------------------------------------------------------------------


def attribution_stream(config: Sizes) -> Found:
    """Stream Criteo Attribution into tables: one pass for the vocabularies, one for the counts."""
    source = criteo_files.attribution(config.attribution_rows, config.attribution_modalities)
    into = _kept(config, "attribution")
    began = time.perf_counter()
    columns = Columns(features=CRITEO_ATTRIBUTION_FEATURES, labels=(CLICK,))
    coding = Coding(categorical=("*",), max_modalities=60_000, min_modality_count=_RAREST)
    schema = learn_schema(source, columns, coding, split=Split(_APART, SEED)).schema
    learnt = time.perf_counter() - began
    share = config.sample_rows / (source.rows or config.attribution_rows)
    rows = stream(
        source,
        schema,
        parse_scopes("pairs", schema),
        into,
        hash_size=config.hash_size,
        apart=_APART,
        sample=min(share / (1 - sum(_APART.values())), 0.99),
    )
    return _streamed(rows, began, into) | {"learn_seconds": round(learnt, 1)}


def encoded_stream(config: Sizes) -> Found:
    """Learn target encodings on held-out records, and stream the others through them into tables."""
    files = criteo_files.adkdd(config.adkdd)
    into = _kept(config, "encoded")
    began = time.perf_counter()
    schema = learn_encoded_schema(
        files.held_out(), ADKDD_FEATURES, config.encode_over, config.encoding_modalities
    )
    learnt = time.perf_counter() - began
    share = min(config.sample_rows / files.rows, 0.99)
    rows = stream(files.source(), schema, parse_scopes("pairs", schema), into, sample=share)
    encodings = {f.name: f.n_modalities for f in schema.features if f.kind == "encoded"}
    return _streamed(rows, began, into) | {"learn_seconds": round(learnt, 1), "encodings": encodings}


def _streamed(rows: int, began: float, into: Streamed) -> Found:
    seconds = time.perf_counter() - began
    data = into.load()
    return {
        "rows": rows,
        "seconds": round(seconds, 1),
        "rows_per_second": round(rows / seconds),
        "training_rows": data.rows,
        **_shape(data),
    }


def _shape(data: AggregatedData) -> Found:
    return {"tables": len(data.tables), "cells": data.n_cells, "cards": list(data.schema.cards)}


def raw_receive(config: Sizes) -> Found:
    """Receive the noisy tables, and keep those that a field can be fitted to."""
    files = criteo_files.adkdd(config.adkdd, tables=True)
    into = _kept(config, "raw")
    began = time.perf_counter()
    received = read_adkdd(files.tables(), hash_size=config.hash_size).data
    seconds = time.perf_counter() - began
    tables = received.tables.values()
    ((law, sigma),) = {(t.noise.law, t.noise.scale) if t.noise else ("none", 0.0) for t in tables}
    few = [f.name for f in received.schema.features if f.n_modalities <= config.raw_most]
    into.folder.mkdir(parents=True, exist_ok=True)
    save_schema(received.schema, into.folder / "schema.json")
    save(received.select(features=few), into.tables)
    judges = _judges(config, "raw", received.schema)
    return {
        "seconds": round(seconds, 1),
        "noise": law,
        "sigma": sigma,
        "training_rows": round(float(received.rows)),
        **_shape(received),
        "kept_features": len(few),
        "models": baselines(received, judges, config.naive_bayes_iterations),
    }


_STREAMS = {"attribution": attribution_stream, "encoded": encoded_stream, "raw": raw_receive}


# -- models --------------------------------------------------------------------------------------


def _judges(config: Sizes, name: str, schema: Schema) -> Judges:
    if name == "attribution":
        into = _ready(config, name)
        return Judges(encoded(into.records("valid"), schema), encoded(into.records("test"), schema))
    files = criteo_files.adkdd(config.adkdd)
    return Judges(encoded(files.valid(), schema), encoded(files.test(), schema))


def fit_baselines(config: Sizes, name: str) -> Found:
    """Naive Bayes and the best pair."""
    data = _ready(config, name).load()
    judges = _judges(config, name, data.schema)
    return {"models": baselines(data, judges, config.naive_bayes_iterations)}


def true_score(config: Sizes, name: str) -> Found:
    """NLLH of the probabilities that simulated test records were drawn with; nothing for published ones."""
    if name == "attribution":
        source = criteo_files.attribution(config.attribution_rows, config.attribution_modalities)
        if not source.simulated:
            return {}
        y, log_odds = criteo_simulated.attribution_truth(
            config.attribution_rows,
            config.attribution_modalities,
            lambda start, n: assign(start, n, SEED, _APART) == 1,
        )
    else:
        if criteo_files.published_adkdd() is not None:
            return {}
        y, log_odds = criteo_simulated.adkdd_truth(config.adkdd)
    return {"nllh": round(nllh(y, log_odds), 5), "test_rows": len(y), "positives": int(y.sum())}


def fit_to_tables(config: Sizes, name: str) -> Found:
    """The field, its penalty chosen on validation records, and by its rule from the tables alone."""
    data = _ready(config, name).load()
    judges = _judges(config, name, data.schema)
    problem = make_problem(data, CLICK.name)
    found = {"field": choose_field(problem, config.settings, judges)}
    if name != "raw":  # the rule knows nothing of noise
        found["field_rule"] = fit_field(problem, config.settings, judges)
    return {"models": found, **_shape(data)}


def fit_to_sample(config: Sizes, name: str) -> Found:
    """The logistic on sampled records, and the field on the tables of the same records."""
    kept = _ready(config, name)
    if name == "raw":
        return _fit_raw_sample(config, kept)
    data = kept.load()
    schema, scopes = data.schema, list(data.tables)
    hash_size = config.hash_size if name == "attribution" else None
    judges = _judges(config, name, schema)
    sample = encoded(kept.records(SAMPLE), schema)
    few = tables_of(sample, schema, scopes, hash_size)
    return {
        "models": {
            "logistic": skyline(sample, layout_of(data), config.logistic_iterations, judges),
            "field_sample": choose_field(make_problem(few), config.settings, judges),
        },
        "sample_rows": len(sample.positive),
    }


def _fit_raw_sample(config: Sizes, kept: Streamed) -> Found:
    """The logistic on raw features: all of them, and those that the field has."""
    whole = load_schema(kept.folder / "schema.json")
    few = load_schema(kept.tables)
    records = _ready(config, "encoded").records(SAMPLE)
    found: dict[str, Any] = {}
    for key, schema in (("logistic", whole), ("logistic_same", few)):
        judges = _judges(config, "raw", schema)
        layout = _pair_layout(schema, config.hash_size // 4)
        found[key] = skyline(encoded(records, schema), layout, config.logistic_iterations, judges)
        found[key]["cells"] = layout.n_cells
    return {"models": found}


def _pair_layout(schema: Schema, hash_size: int) -> Layout:
    """All pairs, those of more cells hashed."""
    scopes = list(combinations(range(len(schema.features)), 2))
    sizes = np.array([prod(schema.cards[f] for f in scope) for scope in scopes])
    return Layout.hashed(schema.cards, scopes, np.where(sizes > hash_size, hash_size, 0).tolist())
