"""From aggregated data to a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from agglearn.field.problem import make_problem
from agglearn.model.model import Model
from agglearn.model.record import FitRecord
from agglearn.schema.schema import Schema
from agglearn.tables.data import AggregatedData
from agglearn.train import loop
from agglearn.train.checkpoint import Checkpoints
from agglearn.train.select.choose import choose
from agglearn.train.select.folds import add_parts, folds_of, one_fold
from agglearn.train.settings import FitSettings
from agglearn.train.state import FitState


def fit(
    data: AggregatedData | Sequence[AggregatedData],
    settings: FitSettings | None = None,
    *,
    label: str | None = None,
    threads: int | None = None,
    on_iteration: Callable[[FitState], None] | None = None,
    checkpoints: Checkpoints | None = None,
    valid: AggregatedData | None = None,
) -> Model:
    """Fit a field to aggregated data.

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
        Tables of other records, to score now and then; the scores stand in the history.

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
    heldout = None if valid is None else one_fold(whole, valid, label)
    folds = [heldout] if heldout else folds_of(parts, label) if settings.to_choose else []
    choice = None
    if settings.to_choose and folds:
        choice = choose(folds, settings, threads=threads, on_iteration=on_iteration, checkpoints=checkpoints)
    fitted = loop.fit(
        heldout.train if heldout else make_problem(whole, label),
        choice.applied_to(settings) if choice else settings,
        threads=threads,
        on_iteration=on_iteration,
        checkpoints=checkpoints,
        valid=heldout.valid if heldout else None,
        stop_by_valid=choice is not None,
    )
    chosen = whole.schema.labels[whole.label_index(label)]
    names, scopes = whole.schema.names, fitted.problem.layout.scopes
    return Model(
        schema=Schema(whole.schema.features, (chosen,)),
        label=chosen,
        scopes=tuple(tuple(names[f] for f in scope) for scope in scopes),
        field=fitted.field,
        chains=fitted.engine.chains,
        rows=fitted.problem.rows,
        positives=fitted.problem.positives,
        record=FitRecord.of_fit(fitted, settings, choice, len(whole.tables), time.perf_counter() - began),
    )
