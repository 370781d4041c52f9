"""From aggregated data to a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from math import inf
from typing import Any

from agglearn.errors import InputError
from agglearn.field.denoise import denoised
from agglearn.field.engines.protocol import KEPT_CHAINS
from agglearn.field.engines.records import KEPT
from agglearn.field.heldout import score_heldout
from agglearn.field.kernels.score import Codes
from agglearn.field.members import Members
from agglearn.field.problem import Problem, make_problem
from agglearn.field.public import PublicTable, with_public
from agglearn.field.strength import weight_variances
from agglearn.model.carry import carry, with_prior
from agglearn.model.given import CodedRecords, code_features, tables_of, with_records
from agglearn.model.given import public_tables as public_counts
from agglearn.model.model import Model
from agglearn.model.record import FitRecord
from agglearn.records.options import ReadOptions
from agglearn.runtime.speech import option
from agglearn.runtime.threads import thread_count
from agglearn.schema.schema import Schema
from agglearn.tables.check import undeclared_noise
from agglearn.tables.data import AggregatedData
from agglearn.train import loop
from agglearn.train.checkpoint import Checkpoints
from agglearn.train.mains import wants_mains, with_mains
from agglearn.train.select.choose import choose
from agglearn.train.select.folds import Fold, add_parts, folds_of, one_fold
from agglearn.train.settings import FitSettings
from agglearn.train.state import FitState, Warm


def fit(
    data: AggregatedData | Sequence[AggregatedData],
    settings: FitSettings | None = None,
    *,
    label: str | None = None,
    threads: int | None = None,
    on_iteration: Callable[[FitState], None] | None = None,
    checkpoints: Checkpoints | None = None,
    valid: Any = None,
    records: Any = None,
    rake: bool = True,
    keep_records: bool = True,
    labelled: Any = None,
    public_tables: Any = None,
    start_from: Model | None = None,
    prior: Model | None = None,
    prior_weight: float = 1.0,
    read: ReadOptions | None = None,
    show_progress: bool = False,
) -> Model:
    """Fit a field to aggregated data, and to what else is known.

    Parameters
    ----------
    data
        The tables; several are parts of disjoint records, and are added up.
    settings
        How to fit. Penalties that are ``"auto"`` are chosen on ``valid`` if it is given, or else by
        cross-validation over the parts.
    label
        The label to predict, where the tables have several.
    threads
        Threads to use (all cores by default); they change the time, never the result.
    on_iteration
        Called with the state after each iteration, for a display.
    checkpoints
        Where to keep states, and where to go on from if there is one already.
    valid
        Tables of other records, or those records themselves with their labels, to score now and then; the
        scores stand in the history.
    records
        Records without labels, of any kind that can be aggregated: a better law of X than the field's. A
        label among their columns is not looked at. With all records the fit is the penalised logistic
        regression; few are used beside the chains.
    rake
        Whether records are weighted to agree with the tables.
    keep_records
        Whether the model keeps some of them, coded, as the law of X that it is judged by.
    labelled
        Further records with their labels, none of them behind the tables: they are counted and added up.
    public_tables
        Counts of features that are public (census margins): tables, or files with values and a count. They
        tell of noisy tables what their noise hides of X; exact ones need nothing of them.
    start_from
        An earlier model of the same features to begin from.
    prior, prior_weight
        An earlier model that the penalty pulls to, instead of 0, and what it is multiplied by.
    read
        Separator, encoding and missing values of text files.
    show_progress
        Whether to draw a bar on a terminal while records are read.

    Examples
    --------
    >>> import agglearn
    >>> records = {"colour": ["red", "blue"] * 50, "size": ["S", "S", "L", "L"] * 25,
    ...            "click": [1, 0, 1, 1] * 25}
    >>> agglearn.fit(agglearn.aggregate(records, "click"))
    <Model of click: 1 tables, 4 cells, 100 records>
    """
    began = time.perf_counter()
    settings = settings or FitSettings()
    parts = [data] if isinstance(data, AggregatedData) else list(data)
    whole = add_parts(parts)
    if labelled is not None:
        whole = whole + tables_of(labelled, whole, None, read)
        parts = [whole]
    given = _Given(whole, label, settings, thread_count(threads), rake, show_progress)
    given.read(records, start_from, prior, prior_weight, read)
    if public_tables is not None:
        given.public = public_counts(public_tables, whole, read)
    heldout = None if valid is None else given.fold(valid, read)
    folds = [heldout] if heldout else given.folds(parts) if settings.to_choose else []
    choice = None
    if settings.to_choose and folds:
        choice = choose(
            folds, given.settings, threads=threads, on_iteration=on_iteration, checkpoints=checkpoints
        )
    problem = heldout.train if heldout else given.problem(make_problem(whole, label))
    fitted = loop.fit(
        problem,
        choice.applied_to(given.settings) if choice else given.settings,
        threads=threads,
        on_iteration=on_iteration,
        checkpoints=checkpoints,
        valid=heldout.valid if heldout else None,
        stop_by_valid=choice is not None,
        warm=given.warm(problem),
    )
    chosen = whole.schema.labels[whole.label_index(label)]
    names, scopes = whole.schema.names, fitted.problem.layout.scopes
    chains = _kept(fitted, keep_records)
    used = given.used(fitted, chains)
    record = FitRecord.of_fit(fitted, settings, choice, len(whole.tables), time.perf_counter() - began, used)
    if problem.effects is not None:  # the tables it knows as its own are those that were given
        given_tables = make_problem(whole, label)
        own = with_mains(given_tables) if record.mains else given_tables
        score = score_heldout(own, fitted.engine.population(fitted.field), fitted.field)
        noise = {
            "tables": int((given_tables.noise.sums > 0).sum()) if given_tables.noise else 0,
            "share": float(problem.effects.noisy.mean()),
            "nllh": float(score.nllh),
            "nllh_se": float(score.nllh_se),
        }
        record = replace(
            record,
            tables=own.fingerprint,
            used={**record.used, "noise": noise},
            variances=weight_variances(given_tables, fitted.problem),
        )
    odd = undeclared_noise(whole)
    if odd is not None:
        record = replace(record, used={**record.used, "undeclared": asdict(odd)})
    if whole.denoised:
        record = replace(record, used={**record.used, "denoised": True})
    return Model(
        schema=Schema(whole.schema.features, (chosen,)),
        label=chosen,
        scopes=tuple(tuple(names[f] for f in scope) for scope in scopes),
        field=fitted.field,
        chains=chains,
        rows=fitted.problem.rows,
        positives=fitted.problem.positives,
        record=record,
        prior=fitted.problem.prior,
    )


def _kept(fitted: loop.Fit, keep_records: bool) -> Codes | None:
    """What a model keeps of its law of X: chains, or some of the records and chains together."""
    if fitted.problem.records is None:
        if not fitted.engine.n_chains:
            return fitted.engine.chains
        return fitted.engine.population(fitted.field).some(KEPT_CHAINS)
    return fitted.engine.population(fitted.field).some(KEPT) if keep_records else None


class _Given:
    """What is known beside the tables, put into the problems of a fit."""

    def __init__(
        self,
        whole: AggregatedData,
        label: str | None,
        settings: FitSettings,
        threads: int,
        rake: bool,
        show_progress: bool = False,
    ) -> None:
        self._show = show_progress
        self.settings = settings
        self._whole, self._label, self._threads, self._rake = whole, label, threads, rake
        self._name = whole.schema.label_names[whole.label_index(label)]
        self._records: CodedRecords | None = None
        self._start: Model | None = None
        self._prior: Model | None = None
        self._used: dict[str, Any] = {}
        self.public: list[PublicTable] = []

    def read(
        self, records: Any, start: Model | None, prior: Model | None, weight: float, read: ReadOptions | None
    ) -> None:
        """Take it in, or say what is wrong with it before anything is fitted."""
        self._start, self._prior = start, prior
        if prior is not None:
            self.settings = _stronger(self.settings, weight)
            self._used["prior"] = {"rows": prior.rows, "weight": weight}
        if records is not None:
            self._records = code_features(
                records, self._whole.schema, self._name, read, show_progress=self._show
            )

    def problem(self, problem: Problem) -> Problem:
        """A problem with all of it, relieved of noise."""
        problem, trusts = with_public(problem, self.public)
        if trusts:
            names = self._whole.schema
            self._used["public"] = [{**vars(t), "scope": _title(t.scope, names)} for t in trusts]
        problem = denoised(problem)
        if wants_mains(problem, self.settings.by_table):
            problem = with_mains(problem)
        schema = self._whole.schema
        if self._prior is not None:
            problem = with_prior(problem, carry(self._prior, schema, self._name, problem, "the prior"))
        if self._records is not None:
            problem, used = with_records(problem, self._records, self._threads, weigh=self._rake)
            titled = tuple((_title(scope, schema), z) for scope, z in used.distances)
            self._used["records"] = replace(used, distances=titled)
        return problem

    def fold(self, valid: Any, read: ReadOptions | None) -> Fold:
        """The fold of validation tables, or of validation records."""
        if isinstance(valid, AggregatedData):
            return self._known(one_fold(self._whole, valid, self._label))
        judged = code_features(valid, self._whole.schema, self._name, read, show_progress=self._show)
        fold = one_fold(self._whole, tables_of(valid, self._whole, self._name, read), self._label)
        law = Members.evenly(fold.valid.layout, judged.codes, self._threads)
        return self._known(replace(fold, valid=replace(fold.valid, records=law)))

    def folds(self, parts: Sequence[AggregatedData]) -> list[Fold]:
        """The folds of several parts."""
        return [self._known(fold) for fold in folds_of(parts, self._label)]

    def _known(self, fold: Fold) -> Fold:
        return replace(fold, train=self.problem(fold.train))

    def warm(self, problem: Problem) -> Warm | None:
        """Where the earlier model ended, if one is to begin from."""
        if self._start is None:
            return None
        if wants_mains(problem, self.settings.by_table):
            problem = with_mains(problem)
        carried = carry(self._start, self._whole.schema, self._name, problem, "the model to begin from")
        self._used["from"] = {"rows": self._start.rows, **carried.to_json()}
        return carried.warm

    def used(self, fitted: loop.Fit, kept: Codes | None) -> dict[str, Any]:
        """What was used, for the model's record."""
        found = dict(self._used)
        if "records" in found:
            share = fitted.state.history[-1].records
            used = replace(
                found["records"],
                share=1.0 if share is None else share,
                kept=0 if kept is None else kept.shape[1],
            )
            found["records"] = used.to_json()
        return found


def _title(scope: tuple[int, ...], schema: Schema) -> str:
    return " × ".join(schema.names[f] for f in scope)


def _stronger(settings: FitSettings, weight: float) -> FitSettings:
    """Settings whose penalties are so many times what they would be."""
    if not 0 < weight < inf:
        raise InputError(f"{option('prior_weight')} {weight:g} must be above 0")
    if settings.fixed_theta is not None:
        return replace(settings, lambda_theta=settings.fixed_theta * weight)
    strength = settings.training.strength * weight
    return replace(settings, training=replace(settings.training, strength=strength))
