"""From records as many as Criteo's to tables, and models whose memory does not grow with the records.

The logistic skyline minimises Σ log loss + λ‖θ‖² over the very cells of the field, by L-BFGS. The one-hot of
its records would take 20 bytes a record and table; here the gradient is the field's own gather and tally over
the codes, 2 bytes a record and feature. The variables are scaled by 1/√(h + 2λ), with h the curvature of a
cell where θ = 0, which L-BFGS needs on cells of very different counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.optimize import minimize
from scipy.special import expit
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from agglearn.aggregation.tally import Tally
from agglearn.field.kernels.score import score_codes, tally
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem, make_problem
from agglearn.judge.baselines import LogOddsModel, naive_bayes, pair_models
from agglearn.records.first_pass import learn_schema
from agglearn.records.options import Coding, TargetEncoding
from agglearn.records.roles import Columns
from agglearn.records.sources import Source
from agglearn.records.split import assign
from agglearn.schema.features import Codes
from agglearn.schema.schema import Label, Schema
from agglearn.tables.data import AggregatedData
from agglearn.tables.format import load, save
from agglearn.tables.table import Scope, Table
from agglearn.train.loop import begin, fit, iterate
from agglearn.train.settings import FitSettings
from evidence.paper.nllh_fits import PAPERS_METHOD
from evidence.splits import HeldOut, Predictor
from evidence.timing import THREADS

Floats = npt.NDArray[np.float64]
Found = dict[str, Any]

FIELD_LAMBDAS = LOGISTIC_LAMBDAS = tuple(4.0**k for k in range(8))
BASELINE_LAMBDAS = tuple(4.0**k for k in range(10))
PAIR_LAMBDAS = (1.0, 16.0, 256.0)
FIRST_LAMBDA = 256.0  # where searches begin: about the best on simulated ads logs

CLICK = Label("click")
SAMPLE = "sample"
_ENCODING_SHARE = 1 - 1e-6  # of the held-out records: a share must leave some
_SMOOTHING, _PAIRS_FITTED = 50.0, 5
_MEMORIES = 5  # of L-BFGS: each holds two vectors of all cells
SEED = 0


# -- from records to tables ----------------------------------------------------------------------


def learn_encoded_schema(held_out: Source, features: Sequence[str], over: int, modalities: int) -> Schema:
    """A schema from held-out records: features of more than ``over`` values become target encodings."""
    categorical = Coding(categorical=("*",), max_modalities=60_000, min_modality_count=1)
    columns = Columns(features=tuple(features), labels=(CLICK,))
    plain = learn_schema(held_out, columns, categorical).schema
    wide = tuple(f.name for f in plain.features if f.n_modalities > over)
    if not wide:
        return plain
    encoding = TargetEncoding(wide, _ENCODING_SHARE, modalities)
    encoded = learn_schema(held_out, Columns(features=wide, labels=(CLICK,)), categorical, encoding=encoding)
    by_name = {f.name: f for f in encoded.schema.features}
    return Schema(tuple(by_name.get(f.name, f) for f in plain.features), plain.labels)


@dataclass(frozen=True)
class Streamed:
    """Tables of a stream of records, and the records of it that were kept, in a folder."""

    folder: Path

    @property
    def tables(self) -> Path:
        return self.folder / "tables.agg"

    def records(self, part: str) -> Path:
        return self.folder / f"{part}.parquet"

    def load(self) -> AggregatedData:
        return load(self.tables)


def stream(
    source: Source,
    schema: Schema,
    scopes: list[Scope],
    into: Streamed,
    *,
    hash_size: int | None = None,
    apart: Mapping[str, float] | None = None,
    sample: float = 0.0,
) -> int:
    """Count the records of a source into tables, in one pass and whatever memory the tables take.

    Parameters
    ----------
    source, schema, scopes, hash_size
        The records, how they are coded, and which tables.
    into
        Where the tables and the kept records go.
    apart
        Shares of the records that are kept as they are, and are in no table.
    sample
        Share of the counted records that are kept as well.

    Returns
    -------
    int
        How many records there were.
    """
    shares = dict(apart or {})
    counters = Tally(schema, scopes, hash_size)
    columns = [*source.columns]
    rows = 0
    into.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:
        writers: dict[str, Any] = {}
        for batch in source.batches(columns):
            part = (
                assign(rows, batch.num_rows, SEED, shares) if shares else np.zeros(batch.num_rows, np.uint8)
            )
            taken = assign(rows, batch.num_rows, SEED + 1, {SAMPLE: sample}) == 1 if sample else part < 0
            rows += batch.num_rows
            kept = {name: part == k for k, name in enumerate(shares, 1)} | {SAMPLE: taken & (part == 0)}
            for name, mine in kept.items():
                if name not in writers:
                    writers[name] = files.enter_context(pq.ParquetWriter(into.records(name), batch.schema))
                writers[name].write_batch(batch.filter(pa.array(mine)))
            training = batch if not shares else batch.filter(pa.array(part == 0))
            counters.add(schema.encode(training), schema.encode_labels(training))
    positives = tuple(int(p) for p in counters.positives)
    save(AggregatedData(schema, counters.tables(), counters.rows, positives), into.tables)
    return rows


def encoded(records: Any, schema: Schema) -> HeldOut:
    """Records, coded."""
    table = pq.read_table(records) if isinstance(records, Path) else records
    return HeldOut(schema.encode(table), schema.encode_labels(table)[0] == 1)


def tables_of(records: HeldOut, schema: Schema, scopes: list[Scope], hash_size: int | None) -> AggregatedData:
    """Tables of coded records."""
    counters = Tally(schema, scopes, hash_size)
    counters.add(np.ascontiguousarray(records.codes), records.positive.astype(np.uint8)[None, :])
    positives = int(records.positive.sum())
    return AggregatedData(schema, counters.tables(), len(records.positive), (positives,))


# -- models --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Judges:
    """Coded records: those that penalties are chosen on, and those that models are judged on in the end."""

    valid: HeldOut
    test: HeldOut

    def of(self, model: Predictor) -> Found:
        """The scores of a model on both."""
        return {
            "nllh": round(self.test.nllh(model), 5),
            "valid": round(self.valid.nllh(model), 5),
        }


def uphill(grid: Sequence[float], fitted: Callable[[float], Found], first: float) -> Found:
    """Of the models that each penalty of a grid gives, the best on validation records.

    Goes from penalty to penalty while the score rises; it has one peak. Keeps all scores it has seen.
    """
    seen: dict[int, Found] = {}

    def known(k: int) -> Found:
        if k not in seen:
            seen[k] = fitted(grid[k]) | {"lambda_theta": grid[k]}
        return seen[k]

    at = grid.index(first)
    while True:
        best = max((k for k in (at, at + 1, at - 1) if 0 <= k < len(grid)), key=lambda k: known(k)["valid"])
        if best == at:
            tried = {f"{grid[k]:g}": found["valid"] for k, found in sorted(seen.items())}
            return known(at) | {"tried": tried}
        at = best


def fit_field(problem: Problem, settings: FitSettings, judges: Judges) -> Found:
    """A field: its scores, its penalty, and what it took."""
    fitted = fit(problem, settings, threads=THREADS)
    last = fitted.state.history[-1]
    return {
        **judges.of(fitted.field),
        "lambda_theta": round(last.lambda_theta, 2),
        "iterations": fitted.iterations,
        "chains": last.chains,
        "fit_seconds": round(fitted.seconds, 1),
        "halvings": round(-np.log2(fitted.state.step_scale)),
    }


def choose_field(problem: Problem, settings: FitSettings, judges: Judges) -> Found:
    """A field whose penalty is chosen on validation records."""

    def fitted(l2: float) -> Found:
        return fit_field(problem, replace(settings, lambda_theta=l2), judges)

    return uphill(FIELD_LAMBDAS, fitted, FIRST_LAMBDA)


def logistic_on_codes(
    codes: Codes, y: npt.NDArray[np.bool_], layout: Layout, l2: float, *, max_iter: int
) -> LogOddsModel:
    """The logistic regression of the module's docstring; every code must be known."""
    rate = float(y.mean())
    counts, _ = tally(codes, np.zeros(len(y)), layout, THREADS)
    seen = np.flatnonzero(counts)  # the others keep the weight 0
    curvature = np.append(counts[seen] * rate * (1 - rate) + 2 * l2, len(y) * rate * (1 - rate))
    scale = 1 / np.sqrt(curvature)
    theta = np.zeros(layout.n_cells)

    def loss(scaled: Floats) -> tuple[float, Floats]:
        weights = scaled * scale
        own, intercept = weights[:-1], float(weights[-1])
        theta[seen] = own
        z = score_codes(codes, layout, theta, intercept, THREADS)
        residuals = expit(z) - y
        _, slope = tally(codes, residuals, layout, THREADS)
        value = np.logaddexp(0.0, z).sum() - z[y].sum() + l2 * (own @ own)
        gradient = np.append(slope[seen] + 2 * l2 * own, residuals.sum())
        return float(value) / len(y), gradient * scale / len(y)

    first = np.append(np.zeros(len(seen)), np.log(rate / (1 - rate)))
    with threadpool_limits(1):  # threads of BLAS that wait for vectors so short take the kernels' cores
        done = minimize(
            loss,
            first / scale,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "maxcor": _MEMORIES, "ftol": 1e-8, "gtol": 0.0},
        )
    weights = done.x * scale
    theta[seen] = weights[:-1]
    return LogOddsModel(layout, theta, float(weights[-1]))


def skyline(sample: HeldOut, layout: Layout, max_iter: int, judges: Judges) -> Found:
    """The logistic on sampled records, its penalty chosen with a quarter of them on validation records.

    The penalty is that of a sum over the records, as the prior of a weight is, so it does not depend on their
    number.
    """
    known = (sample.codes < np.array(layout.cards)[:, None]).all(axis=0)
    codes, y = np.ascontiguousarray(sample.codes[:, known]), sample.positive[known]
    quarter = slice(0, len(y) // 4)
    few, few_y = np.ascontiguousarray(codes[:, quarter]), y[quarter]
    began = time.perf_counter()

    def fitted(l2: float) -> Found:
        return judges.of(logistic_on_codes(few, few_y, layout, l2, max_iter=max_iter))

    chosen = uphill(LOGISTIC_LAMBDAS, fitted, FIRST_LAMBDA)
    model = logistic_on_codes(codes, y, layout, chosen["lambda_theta"], max_iter=max_iter)
    seconds = round(time.perf_counter() - began, 1)
    return chosen | judges.of(model) | {"rows": len(y), "fit_seconds": seconds}


def baselines(data: AggregatedData, judges: Judges, iterations: int) -> dict[str, Found]:
    """Naive Bayes, plain and stopped early as the paper did, and the best pair: all from tables."""
    singles = make_problem(_singles(data), CLICK.name)
    return {
        "naive_bayes_plain": judges.of(naive_bayes(singles, 0.0)),
        "naive_bayes": max(
            (judges.of(naive_bayes(singles, l2)) | {"lambda_theta": l2} for l2 in BASELINE_LAMBDAS),
            key=lambda one: one["valid"],
        ),
        "naive_bayes_stopped": stopped_naive_bayes(singles, judges, iterations),
        "best_pair": best_pair(make_problem(data, CLICK.name), data.schema, judges),
    }


def best_pair(problem: Problem, schema: Schema, judges: Judges) -> Found:
    """The logistic of one pair of features that does best on validation records.

    Pairs are ranked by their smoothed rates, logit((c + s·p₀)/(d + s)) with p₀ the base rate, and the
    logistics of the first few are fitted: those of all pairs would take long where tables have a million
    cells.
    """
    base, rate = problem.base_log_odds, problem.positives / problem.rows
    ranked: list[tuple[float, tuple[int, ...]]] = []
    layout = problem.layout
    for t, scope in enumerate(layout.scopes):
        if len(scope) != 2:
            continue
        part = layout.part(t)
        d = np.maximum(problem.d[part], 0.0)
        c = np.clip(problem.c[part], 0.0, d)
        own = Layout(layout.cards, (scope,), (layout.cells[t],))
        theta = np.log((c + _SMOOTHING * rate) / (d - c + _SMOOTHING * (1 - rate))) - base
        ranked.append((judges.valid.nllh(LogOddsModel(own, theta, base)), scope))
    few = [scope for _, scope in sorted(ranked, reverse=True)[:_PAIRS_FITTED]]
    return max(
        (
            judges.of(pair_models(problem, l2, [pair])[0])
            | {"lambda_theta": l2, "pair": [schema.names[f] for f in pair]}
            for l2 in PAIR_LAMBDAS
            for pair in few
        ),
        key=lambda one: one["valid"],
    )


def _singles(data: AggregatedData) -> AggregatedData:
    """The tables of the single features: as they are held, or summed from others."""
    tables: dict[Scope, Table] = {(name,): data.table(name) for name in data.schema.names}
    return replace(data, tables=tables)


def stopped_naive_bayes(singles: Problem, judges: Judges, iterations: int) -> Found:
    """Naive Bayes by the paper's training, kept at the iteration that the validation records like best.

    On tables of the single features the field is Naive Bayes, and so the paper trained it.
    """
    settings = replace(PAPERS_METHOD, lambda_theta=FIRST_LAMBDA, iterations=iterations)
    engine, start, state = begin(singles, settings, THREADS)
    steps = iterate(engine, start, singles, settings, state, THREADS)
    path = [judges.of(state.weights.now) for _ in steps]
    best = max(range(len(path)), key=lambda t: path[t]["valid"])
    return path[best] | {"iterations": best + 1, "last": path[-1]["nllh"]}
