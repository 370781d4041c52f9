"""A fitted field: what it predicts, what it can draw, and its folder on disk.

``NAME.model/`` holds a manifest (schema, label, settings, how the fit went), Arrow files with μ, θ and
the chains, and ``history.json``. All but the history, which tells times, is the same for the same
tables, settings and seed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import expit

from agglearn.errors import InputError, StoreError
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.engines.local import LocalEngine
from agglearn.field.kernels.score import score_codes
from agglearn.field.layout import Layout
from agglearn.field.problem import make_problem
from agglearn.records.sources import Source
from agglearn.runtime.files import (
    new_folder,
    read_arrays,
    read_json,
    read_manifest,
    write_arrays,
    write_manifest,
)
from agglearn.runtime.threads import thread_count
from agglearn.schema.schema import Label, Schema, require_columns
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Scope
from agglearn.train.checkpoint import Checkpoints, FitState, fingerprint
from agglearn.train.loop import Fit
from agglearn.train.loop import fit as train
from agglearn.train.select.choose import Choice, choose
from agglearn.train.select.folds import add_parts, folds_of, one_fold
from agglearn.train.settings import FitSettings

if TYPE_CHECKING:
    from agglearn.judge.scores import RecordScore
    from agglearn.trust.intervals import Posterior
    from agglearn.trust.score import HeldoutScore

FORMAT = "agglearn.model"
VERSION = 1
_HISTORY = "history.json"
_REFRESH = 5  # sweeps between two draws from the same chain

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted field.

    Attributes
    ----------
    schema, label
        How raw records are coded, and what is predicted.
    scopes
        The features of each table the field was fitted on.
    layout, mu, theta, intercept
        The field itself.
    chains
        The chains at the end of training, a row each, or None where none were kept.
    rows, positives
        Records and positives behind the tables.
    settings, summary, history
        How it was fitted, how that ended, and every iteration.
    """

    schema: Schema
    label: Label
    scopes: tuple[Scope, ...]
    layout: Layout
    mu: Floats
    theta: Floats
    intercept: float
    chains: npt.NDArray[np.uint16] | None
    rows: float
    positives: float
    settings: Mapping[str, Any]
    summary: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]

    @classmethod
    def fit(
        cls,
        data: AggregatedData | Sequence[AggregatedData],
        settings: FitSettings | None = None,
        *,
        label: str | None = None,
        threads: int | None = None,
        on_iteration: Callable[[FitState], None] | None = None,
        checkpoints: Checkpoints | None = None,
        valid: AggregatedData | None = None,
    ) -> tuple[Model, float]:
        """Fit a field to aggregated data; gives the model and the seconds it took.

        The parameters are those of :func:`agglearn.train.loop.fit`, with ``valid`` as aggregated data.
        Several data are parts of disjoint records, and are added up. Penalties that are ``"auto"`` in the
        settings are chosen on ``valid`` if it is given, or else by cross-validation over the parts.
        """
        began = time.perf_counter()
        settings = settings or FitSettings()
        parts = [data] if isinstance(data, AggregatedData) else list(data)
        whole = add_parts(parts)
        heldout = None if valid is None else one_fold(whole, valid, label)
        folds = [heldout] if heldout else folds_of(parts, label) if settings.to_choose else []
        choice = None
        if settings.to_choose and folds:
            choice = choose(
                folds, settings, threads=threads, on_iteration=on_iteration, checkpoints=checkpoints
            )
        fit = train(
            heldout.train if heldout else make_problem(whole, label),
            choice.applied_to(settings) if choice else settings,
            threads=threads,
            on_iteration=on_iteration,
            checkpoints=checkpoints,
            valid=heldout.valid if heldout else None,
            stop_by_valid=choice is not None,
        )
        chosen = whole.schema.labels[whole.label_index(label)]
        model = cls._of_fit(fit, whole, chosen, settings, choice)
        return model, time.perf_counter() - began

    @classmethod
    def _of_fit(
        cls,
        fit: Fit,
        data: AggregatedData,
        label: Label,
        settings: FitSettings,
        choice: Choice | None,
    ) -> Model:
        """The model that a fit ended with."""
        chains = fit.engine.chains if isinstance(fit.engine, LocalEngine) else None
        noise = data.noise_of(data.tables).tolist()
        return cls(
            schema=Schema(data.schema.features, (label,)),
            label=label,
            scopes=tuple(data.tables),
            layout=fit.problem.layout,
            mu=fit.mu,
            theta=fit.theta,
            intercept=fit.intercept,
            chains=chains,
            rows=fit.problem.rows,
            positives=fit.problem.positives,
            settings=asdict(settings),
            summary={
                "iterations": fit.iterations,
                "lambda_theta": fit.state.lambda_theta,
                "lambda_mu": fit.settings.fixed_mu,
                "stopped_because": fit.state.stopped_because,
                "chains": 0 if chains is None else len(chains),
                "steps_halved": round(-np.log2(fit.state.step_scale)),
                "tables": fingerprint(fit.problem),
                **({"noise": noise} if any(noise) else {}),
                **({"choice": choice.to_json()} if choice else {}),
            },
            history=fit.state.history,
        )

    def log_odds(self, codes: npt.NDArray[np.uint16], threads: int | None = None) -> Floats:
        """φ(x)·θ + θ₀ of coded records (a row per feature); unknown values add nothing."""
        return score_codes(codes, self.layout, self.theta, self.intercept, thread_count(threads))

    def score_records(
        self, source: Source, others: Sequence[str] = (), threads: int | None = None
    ) -> Iterator[tuple[Any, Floats, Counts]]:
        """For each batch of raw records: the batch, the log-odds, and unknown values per feature.

        The batches hold the features and ``others``.
        """
        for batch, codes, unknown in self.code_records(source, others):
            yield batch, self.log_odds(codes, threads), unknown

    def code_records(
        self, source: Source, others: Sequence[str] = ()
    ) -> Iterator[tuple[Any, npt.NDArray[np.uint16], Counts]]:
        """For each batch of raw records: the batch, the codes, and unknown values per feature."""
        require_columns(self.schema.names, source.columns)
        cards = np.array(self.schema.cards)[:, None]
        for batch in source.batches(list(dict.fromkeys([*self.schema.names, *others]))):
            codes = self.schema.encode(batch)
            yield batch, codes, (codes >= cards).sum(axis=1)

    def posterior(self, draws: int | None = None, seed: int = 0, threads: int | None = None) -> Posterior:
        """What the tables leave open about the weights, for intervals of predictions and weights.

        The parameters are those of :func:`agglearn.trust.intervals.model_posterior`.
        """
        from agglearn.trust.intervals import model_posterior

        return model_posterior(self, draws, seed, threads)

    def evaluate(
        self,
        source: Source,
        threads: int | None = None,
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> tuple[RecordScore, Counts]:
        """The score on records that have their label, and unknown values per feature."""
        from agglearn.judge.scores import score_predictions  # loads scipy.stats, which takes a second

        require_columns([self.label.name], source.columns, what="label")
        labels, scores = [np.zeros(0, np.uint8)], [np.zeros(0)]
        unknown = np.zeros(self.layout.n_features, np.int64)
        for batch, log_odds, count in self.score_records(source, [self.label.name], threads):
            labels.append(self.schema.encode_labels(batch)[0])
            scores.append(log_odds)
            unknown += count
            on_rows(batch.num_rows)
        return score_predictions(np.concatenate(labels), np.concatenate(scores)), unknown

    def evaluate_tables(self, heldout: AggregatedData, threads: int | None = None) -> HeldoutScore:
        """The score on tables of other records: :func:`agglearn.score_tables`."""
        from agglearn.trust.score import score_tables

        return score_tables(self, heldout, threads=threads)

    def sample(self, n: int, seed: int = 0, threads: int | None = None) -> Iterator[Any]:
        """Draw synthetic records with their label in raw values, as Arrow tables of bounded size.

        The chains move :data:`_REFRESH` sweeps before each draw, so records of one draw are independent
        and those of different draws nearly so.
        """
        if n < 1:
            raise InputError(f"{n} records cannot be drawn: ask for at least 1")
        if seed < 0:
            raise InputError(f"seed {seed} must be at least 0")
        rng = np.random.Generator(np.random.Philox(seed))
        engine, burn_in = self._sampler(n, seed, rng, threads)
        weights = (self.mu, self.theta, self.intercept)
        sweeps = 0
        for start in range(0, n, engine.n_chains):
            for _ in range(burn_in if start == 0 else _REFRESH):
                engine.sweep(*weights, sweeps)
                sweeps += 1
            size = min(engine.n_chains, n - start)
            p = expit(engine.scores(self.theta, self.intercept)[:size])
            records = self.schema.decode(np.ascontiguousarray(engine.chains[:size].T), rng)
            label = self.label.decode((rng.random(size) < p).astype(np.uint8))
            yield records.append_column(self.label.name, label)

    def _sampler(
        self, n: int, seed: int, rng: np.random.Generator, threads: int | None
    ) -> tuple[LocalEngine, int]:
        if self.chains is not None:
            chains, burn_in = self.chains[rng.permutation(len(self.chains))[:n]], _REFRESH
        else:
            chains, burn_in = self.exact_draws(min(n, 10_000), seed), 0
        exact_up_to = max(self.layout.cards)
        engine = LocalEngine(
            self.layout,
            chains,
            self.rows,
            seed,
            threads=threads,
            proposals=None,
            exact_up_to=exact_up_to,
        )
        return engine, burn_in

    def exact_draws(self, n: int, seed: int) -> npt.NDArray[np.uint16]:
        """Records of a field that kept no chains: it was fitted by enumeration, and can be drawn from so."""
        engine = ExactEngine(self.layout, self.rows)
        return engine.sample(n, self.mu, self.theta, self.intercept, seed)[0]

    def save(self, target: str | Path) -> None:
        """Write the model as a folder, atomically."""
        arrays: dict[str, npt.NDArray[Any]] = {"mu": self.mu, "theta": self.theta}
        if self.chains is not None:
            arrays["chains"] = self.chains
        with new_folder(Path(target), FORMAT) as folder:
            (folder / _HISTORY).write_text(
                json.dumps({"iterations": list(self.history)}) + "\n", encoding="utf-8"
            )
            write_manifest(
                folder,
                {
                    "format": FORMAT,
                    "version": VERSION,
                    "schema": self.schema.to_json(),
                    "tables": [list(s) for s in self.scopes],
                    "hash_sizes": self.layout.hash_sizes,
                    "intercept": float(self.intercept).hex(),
                    "rows": self.rows,
                    "positives": self.positives,
                    "settings": dict(self.settings),
                    "summary": dict(self.summary),
                    "arrays": write_arrays(folder, "field", arrays),
                },
            )

    @classmethod
    def load(cls, source: str | Path) -> Model:
        """Read a model from its folder."""
        folder = Path(source)
        document = read_manifest(folder, FORMAT, VERSION)
        try:
            return cls._from_manifest(folder, document)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, pa.ArrowException) as error:
            raise StoreError(f"{folder} is damaged ({type(error).__name__}: {error}): fit it again") from None

    @classmethod
    def _from_manifest(cls, folder: Path, document: Mapping[str, Any]) -> Model:
        schema = Schema.from_json(document["schema"], str(folder))
        scopes = tuple(tuple(s) for s in document["tables"])
        layout = Layout(
            cards=schema.cards,
            scopes=tuple(tuple(schema.index[f] for f in scope) for scope in scopes),
            hash_sizes=tuple(document["hash_sizes"]),
        )
        arrays = read_arrays(folder, document["arrays"])
        chains = arrays.get("chains")
        if arrays["mu"].shape != (layout.n_cells,) or arrays["theta"].shape != (layout.n_cells,):
            raise ValueError("weights do not fit the tables")
        if chains is not None and not (
            chains.shape[1:] == (layout.n_features,) and (chains < np.array(layout.cards)).all()
        ):
            raise ValueError("chains do not fit the features")
        history = read_json(folder / _HISTORY)["iterations"]
        if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
            raise ValueError(f"{_HISTORY} does not list iterations")
        return cls(
            schema=schema,
            label=schema.labels[0],
            scopes=scopes,
            layout=layout,
            mu=arrays["mu"],
            theta=arrays["theta"],
            intercept=float.fromhex(document["intercept"]),
            chains=chains,
            rows=document["rows"],
            positives=document["positives"],
            settings=document["settings"],
            summary=document["summary"],
            history=history,
        )
