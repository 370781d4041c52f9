"""Where a model cannot be trusted, from tables alone.

Four questions, answered by running the chains at the fitted weights (:mod:`.mixing`): does the field agree
with the tables it was fitted to, do its chains move, what do its predictions rest on, and, with a larger
table to check by, does it agree with what its own tables could not show?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap
from typing import Any

from agglearn.errors import InputError
from agglearn.field.layout import Layout
from agglearn.field.margins import Margin, held_margins
from agglearn.field.problem import Problem, make_problem, require_schema
from agglearn.model.model import Fitted, Model, model_of, problem_of
from agglearn.runtime.threads import thread_count
from agglearn.tables.data import AggregatedData
from agglearn.trust.misfit import TableMisfit, misfits
from agglearn.trust.mixing import Memory, Mixing, watch
from agglearn.trust.reliance import Reliance, reliance

FAR = 2.0  # root mean square z from which a table is warned of: misfit then outweighs sampling three to one
_CHANCE = 0.01  # that one table of all is warned of although nothing is wrong
_SLOW = 8.0  # sweeps to forget, from which chains are warned of: training takes some tens of sweeps
_APART = 4.0  # standard errors between the two halves
_SHOWN = 5
_WIDTH = 110


@dataclass(frozen=True)
class Diagnosis:
    """What was found about a model.

    Attributes
    ----------
    rows, cells
        Records behind the tables, and cells in them.
    own_tables
        Whether the tables are the very ones the model was fitted to.
    misfit
        How far the field is from each table, the worst first.
    mixing
        How its chains move.
    joint, alone
        What share of the log-odds' variance rests on each table's features together, and on each feature
        alone.
    check
        How far the field's own law is from the tables given to check it by, what is newest to it first.
    warnings
        What to mind, in words; none where all is well.
    """

    rows: float
    cells: int
    own_tables: bool
    misfit: tuple[TableMisfit, ...]
    mixing: Mixing
    joint: tuple[Reliance, ...]
    alone: tuple[Reliance, ...]
    check: tuple[TableMisfit, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The diagnosis as plain JSON values."""
        return {
            "rows": self.rows,
            "cells": self.cells,
            "own_tables": self.own_tables,
            "misfit": [m.to_json() for m in self.misfit],
            "mixing": self.mixing.to_json(),
            "joint": [r.to_json() for r in self.joint],
            "alone": [r.to_json() for r in self.alone],
            "check": [m.to_json() for m in self.check],
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        return "\n".join(_text(self))


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
    >>> print(agglearn.diagnose(model, pairs, check=triple).warnings[0][:28])
    x1 × x2 × x3 is not what the
    """
    fitted = model_of(model)
    if seed < 0:
        raise InputError(f"seed {seed} must be at least 0")
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
        pull=2 * fitted.record.lambda_theta * fitted.field.theta,
        inflation=1.0 if own_tables else 1 + problem.rows / fitted.rows,
    )
    found: tuple[TableMisfit, ...] = ()
    if checked is not None:
        margins = [_margins(checked.layout, t, fitted) for t in range(checked.layout.n_tables)]
        found = misfits(checked, seen.tallies[1], fitted.schema, margins=margins)
    joint, alone = reliance(fitted, seen.cells, seen.scores, seen.score_variance)
    return Diagnosis(
        rows=problem.rows,
        cells=problem.layout.n_cells,
        own_tables=own_tables,
        misfit=_worst_first(own),
        mixing=seen.mixing,
        joint=joint,
        alone=alone,
        check=_newest_first(found),
        warnings=tuple(_warnings(own, own_tables, found, seen.mixing)),
    )


def _to_check(model: Model, check: AggregatedData) -> Problem:
    require_schema(check, model.schema, "the tables to check by")
    return make_problem(check, model.label.name)


def _margins(layout: Layout, t: int, model: Model) -> list[Margin]:
    """The margins of a table that the field has; a hashed table has none that could be summed."""
    if not layout.cells[t].apart:
        return []
    return held_margins(layout.scopes[t], model.layout.scopes)


def _worst_first(found: Sequence[TableMisfit]) -> tuple[TableMisfit, ...]:
    return tuple(sorted(found, key=lambda m: -max(m.z_records, m.z_positives)))


def _newest_first(found: Sequence[TableMisfit]) -> tuple[TableMisfit, ...]:
    return tuple(sorted(found, key=lambda m: (m.p_value, -max(m.new_records, m.new_positives))))


def _warnings(
    own: Sequence[TableMisfit], own_tables: bool, check: Sequence[TableMisfit], mixing: Mixing
) -> Iterator[str]:
    for m in _newest_first([m for m in check if m.p_value * len(check) < _CHANCE]):
        if max(m.new_records, m.new_positives) > FAR:
            yield (
                f"{m.table} is not what the field expects: records are off by {m.z_records:.1f} and "
                f"positives by {m.z_positives:.1f} standard errors, by {m.new_records:.1f} and "
                f"{m.new_positives:.1f} beyond what its own tables explain; a fit with this table could gain "
                f"{m.gain:.4f} of NLLH"
            )
    off = [
        m
        for m in own
        if m.p_value * len(own) < _CHANCE
        and (m.z_records > FAR or m.z_positives > max(FAR, 1.5 * m.z_penalty))
    ]
    if off:
        worst = _worst_first(off)[0]
        far = f"{worst.table} is off by {max(worst.z_records, worst.z_positives):.1f} standard errors"
        if own_tables:
            yield (
                f"{len(off)} of {len(own)} tables are not fitted, {far}: train for longer (--iterations, "
                "--tolerance), or see whether the tables agree (agglearn check)"
            )
        else:
            yield (
                f"{len(off)} of {len(own)} tables are not of the law that the model was fitted to, {far}: "
                "these records differ from the model's"
            )
    slowest = max((mixing.score, *mixing.features), key=lambda m: m.time)
    if slowest.time > _SLOW:
        what = "the log-odds take" if slowest is mixing.score else f"{slowest.name} takes"
        yield (
            f"the chains are slow: {what} {_sweeps(slowest, mixing)} sweeps to forget, so the field's tables "
            "are known less well than the number of chains says; of features that nearly determine one "
            "another leave one out, or use more chains"
        )
    if abs(mixing.halves_z) > _APART:
        yield (
            f"two halves of the chains disagree on the mean log-odds by {abs(mixing.halves_z):.1f} standard "
            "errors: they have not met"
        )


def _text(found: Diagnosis) -> Iterator[str]:
    yield f"{len(found.misfit):,} tables of {found.cells:,} cells, {found.rows:,.0f} records"
    for warning in found.warnings:
        yield from wrap(f"warning: {warning}", _WIDTH, subsequent_indent="  ")
    if not found.warnings:
        yield "no warning"
    yield from (
        "",
        "Does the model reproduce the tables? Off by, in standard errors (root mean square of cells):",
    )
    yield f"  {'records':>9}{'positives':>11}{'penalty':>9}  the tables farthest off"
    for m in found.misfit[:_SHOWN]:
        yield f"  {m.z_records:>9.2f}{m.z_positives:>11.2f}{m.z_penalty:>9.2f}  {m.table}"
    if found.own_tables:
        expect = "Below 1 the model is nearer to them than another sample of records would be."
    else:
        expect = "These are not the tables that the model was fitted to: expect 1 or a little more."
    yield from _paragraph(
        f"{expect} The penalty holds predictions back on purpose: its column is how much of the positives' "
        "that explains."
    )
    yield from _cells(found.misfit)
    yield from _mixing_text(found.mixing)
    yield from ("", "What do predictions rest on? Shares of the variance of the log-odds:")
    for alone, joint in zip_longest(found.alone[:_SHOWN], found.joint[:_SHOWN]):
        left = f"{alone.share:>9.1%}  {alone.name:<30.30}" if alone else " " * 41
        right = f"{joint.share:>7.1%}  {joint.name} together" if joint else ""
        yield f"  {left}{right}".rstrip()
    yield from _paragraph(
        "On the left one feature by itself, on the right what only the features of a table together tell."
    )
    if found.check:
        yield from _check_text(found.check)


def _check_text(check: Sequence[TableMisfit]) -> Iterator[str]:
    yield from ("", "Does it agree with the tables given to check by? Off by, in standard errors:")
    yield f"  {'records':>9}{'positives':>11}{'new: records':>15}{'positives':>11}{'NLLH to gain':>18}"
    for m in check[:_SHOWN]:
        gain = f"{m.gain:.4f} ± {m.gain_se:.4f}"
        new = f"{m.new_records:>15.2f}{m.new_positives:>11.2f}"
        yield f"  {m.z_records:>9.2f}{m.z_positives:>11.2f}{new}{gain:>18}  {m.table}"
    yield from _paragraph(
        "New is what the tables that the model has of the same features do not explain: about 1 where there "
        "is nothing. NLLH to gain: what the right rate of positives in each cell would add."
    )
    yield from _cells(check)


def _mixing_text(mixing: Mixing) -> Iterator[str]:
    yield from ("", f"Do its chains move? {mixing.chains:,} chains, watched for {mixing.sweeps} sweeps:")
    slow = ", ".join(f"{m.name} {_sweeps(m, mixing)}" for m in mixing.features[:3])
    yield from _paragraph(
        f"Sweeps until a chain has forgotten where it was: log-odds {_sweeps(mixing.score, mixing)}; the "
        f"slowest features {slow}. All that was seen is worth {mixing.score.draws:,.0f} independent draws. "
        f"Two halves of the chains differ by {abs(mixing.halves_z):.1f} standard errors in their mean "
        "log-odds."
    )


def _sweeps(memory: Memory, mixing: Mixing) -> str:
    """A time, as far as so many sweeps can tell it."""
    return f"{memory.time:.1f}" if memory.time < mixing.sweeps else f"over {mixing.sweeps}"


def _cells(found: Sequence[TableMisfit]) -> Iterator[str]:
    worst = sorted((c for m in found for c in m.worst), key=lambda c: -abs(c.z))[:_SHOWN]
    if worst:
        yield f"  {'off by':>9}{'given':>11}{'expected':>11}  the cells farthest off"
    for cell in worst:
        yield f"  {cell.z:>+9.1f}{cell.given:>11,.0f}{cell.expected:>11,.1f}  {cell.what} of {cell.cell}"


def _paragraph(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ")
