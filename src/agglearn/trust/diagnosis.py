"""Where a model cannot be trusted, from tables alone.

Four questions, answered by running the chains at the fitted weights (:mod:`.mixing`): does the field agree
with the tables it was fitted to, do its chains move, what do its predictions rest on, and, with a larger
table to check by, does it agree with what its own tables could not show?
"""

from __future__ import annotations

from agglearn.field.layout import Layout
from agglearn.field.margins import Margin, held_margins
from agglearn.field.problem import Problem, make_problem, require_schema
from agglearn.model.model import Fitted, Model, model_of, problem_of
from agglearn.runtime.options import check_seed
from agglearn.runtime.threads import thread_count
from agglearn.tables.data import AggregatedData
from agglearn.trust.findings import Diagnosis, newest_first, warnings_of, worst_first
from agglearn.trust.misfit import TableMisfit, misfits
from agglearn.trust.mixing import watch
from agglearn.trust.reliance import reliance


def diagnose(
    model: Model | Fitted,
    tables: AggregatedData,
    check: AggregatedData | None = None,
    *,
    threads: int | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Say where a model cannot be trusted, from tables alone.

    Parameters
    ----------
    model
        The model.
    tables
        The tables it was fitted to.
    check
        Tables that it was not fitted to, over the same schema: a triple, or any larger set of features. Of
        the same records or of others.
    threads
        Threads to use (all cores by default); they change the time, never the result.
    seed
        Seed of the chains' moves.

    Examples
    --------
    >>> import agglearn
    >>> from agglearn.datasets import xor
    >>> records = xor(20_000, seed=0)
    >>> pairs = agglearn.aggregate(records, "y", categorical=["*"])
    >>> model = agglearn.fit(pairs)
    >>> triple = agglearn.aggregate(records, "y", schema=pairs.schema, tables="triples")
    >>> print(agglearn.diagnose(model, pairs, check=triple).warnings[0].text[:28])
    x1 × x2 × x3 is not what the
    """
    fitted = model_of(model)
    check_seed(seed)
    workers = thread_count(threads)
    problem = problem_of(fitted, tables, "the tables")
    own_tables = fitted.record.tables == problem.fingerprint
    checked = None if check is None else _to_check(fitted, check)
    layouts = [fitted.layout] if checked is None else [fitted.layout, checked.layout]
    seen = watch(fitted, problem, layouts, seed, workers)
    own = misfits(
        problem,
        seen.tallies[0],
        fitted.schema,
        pull=fitted.record.pull(fitted.field.theta, fitted.layout, fitted.levels),
        inflation=1.0 if own_tables else 1 + problem.rows / fitted.rows,
    )[: len(fitted.tables)]  # main effects are margins of these
    found: tuple[TableMisfit, ...] = ()
    if checked is not None:
        margins = [_margins(checked.layout, t, fitted) for t in range(checked.layout.n_tables)]
        found = misfits(checked, seen.tallies[1], fitted.schema, margins=margins)
    joint, alone = reliance(fitted, seen.cells, seen.scores, seen.score_variance)
    return Diagnosis(
        rows=problem.rows,
        cells=int(problem.layout.offsets[len(fitted.tables)]),
        own_tables=own_tables,
        misfit=worst_first(own),
        mixing=seen.mixing,
        joint=joint,
        alone=alone,
        check=newest_first(found),
        warnings=tuple(warnings_of(own, own_tables, found, seen.mixing)),
    )


def _to_check(model: Model, check: AggregatedData) -> Problem:
    require_schema(check, model.schema, "the tables to check by")
    return make_problem(check, model.label.name)


def _margins(layout: Layout, t: int, model: Model) -> list[Margin]:
    """The margins of a table that the field has; a hashed table has none that could be summed."""
    if not layout.cells[t].apart:
        return []
    return held_margins(layout.scopes[t], model.layout.scopes)
