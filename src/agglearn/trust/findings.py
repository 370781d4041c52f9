"""What a diagnosis found, and how it is told: what to mind first, then the answers to its questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from agglearn.report.document import (
    Block,
    Column,
    Document,
    Grid,
    Heading,
    Measured,
    Note,
    Paragraph,
    Statement,
    number,
)
from agglearn.report.finding import Finding
from agglearn.runtime.speech import option, words
from agglearn.trust.misfit import TableMisfit
from agglearn.trust.mixing import Memory, Mixing
from agglearn.trust.reliance import Reliance
from agglearn.trust.suggest import Suggestion

FAR = 2.0  # root mean square z from which a table is warned of: misfit then outweighs sampling three to one
_CHANCE = 0.01  # that one table of all is warned of although nothing is wrong
_SLOW = 8.0  # sweeps to forget, from which chains are warned of: training takes some tens of sweeps
_APART = 4.0  # standard errors between the two halves
_SHOWN = 5
_NAMED = 3


@dataclass(frozen=True)
class Diagnosis(Finding):
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
        What to mind; none where all is well.
    """

    rows: float
    cells: int
    own_tables: bool
    misfit: tuple[TableMisfit, ...]
    mixing: Mixing
    joint: tuple[Reliance, ...]
    alone: tuple[Reliance, ...]
    check: tuple[TableMisfit, ...]
    warnings: tuple[Note, ...]

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
            "warnings": [note.text for note in self.warnings],
        }

    def document(self) -> Document:
        """What was found, in words and numbers."""
        return Document(
            title=f"{len(self.misfit):,} tables of {self.cells:,} cells, {self.rows:,.0f} records",
            blocks=(
                *(self.warnings or (Statement("no warning"),)),
                *_misfit_blocks(self.misfit, self.own_tables),
                *_mixing_blocks(self.mixing),
                *_reliance_blocks(self.alone, self.joint),
                *(_check_blocks(self.check) if self.check else ()),
            ),
            data=self.to_json(),
        )


def worst_first(found: Sequence[TableMisfit]) -> tuple[TableMisfit, ...]:
    """Tables that the model has, by how far off they are."""
    return tuple(sorted(found, key=lambda m: -max(m.z_records, m.z_positives)))


def newest_first(found: Sequence[TableMisfit]) -> tuple[TableMisfit, ...]:
    """Tables to check by, by what they tell that the model's own do not."""
    return tuple(sorted(found, key=lambda m: (m.p_value, -max(m.new_records, m.new_positives))))


def warnings_of(
    own: Sequence[TableMisfit], own_tables: bool, check: Sequence[TableMisfit], mixing: Mixing
) -> Iterator[Note]:
    """What is so far off, or so slow, that it must be minded."""
    for m in newest_first([m for m in check if m.p_value * len(check) < _CHANCE]):
        if max(m.new_records, m.new_positives) > FAR:
            yield Note(
                f"{m.table} is not what the field expects: records are off by {m.z_records:.1f} and "
                f"positives by {m.z_positives:.1f} standard errors, by {m.new_records:.1f} and "
                f"{m.new_positives:.1f} beyond what its own tables explain; a fit with this table could gain "
                f"{m.gain:.4f} of NLLH",
                cause="new to the field",
            )
    off = [
        m
        for m in own
        if m.p_value * len(own) < _CHANCE
        and (m.z_records > FAR or m.z_positives > max(FAR, 1.5 * m.z_penalty))
    ]
    if off:
        worst = worst_first(off)[0]
        far = f"{worst.table} is off by {max(worst.z_records, worst.z_positives):.1f} standard errors"
        if own_tables:
            longer = f"{option('iterations')}, {option('tolerance')}"
            check_them = words(python="agglearn.check", shell="agglearn check")
            yield Note(
                f"{len(off)} of {len(own)} tables are not fitted, {far}: train for longer ({longer}), or see "
                f"whether the tables agree ({check_them})",
                cause="not fitted",
            )
        else:
            yield Note(
                f"{len(off)} of {len(own)} tables are not of the law that the model was fitted to, {far}: "
                "these records differ from the model's",
                cause="other records",
            )
    slowest = max((mixing.score, *mixing.features), key=lambda m: m.time)
    if slowest.time > _SLOW:
        what = "the log-odds take" if slowest is mixing.score else f"{slowest.name} takes"
        yield Note(
            f"the chains are slow: {what} {_sweeps(slowest, mixing)} sweeps to forget, so the field's tables "
            "are known less well than the number of chains says; of features that nearly determine one "
            "another leave one out, or use more chains",
            cause="slow chains",
        )
    if abs(mixing.halves_z) > _APART:
        yield Note(
            f"two halves of the chains disagree on the mean log-odds by {abs(mixing.halves_z):.1f} standard "
            "errors: they have not met",
            cause="chains apart",
        )


def suggestion_blocks(suggestions: Sequence[Suggestion], budget_cells: int) -> Iterator[Block]:
    """The tables that are worth asking for, within a budget of cells."""
    yield Heading("Which further tables are worth asking the data holder for?")
    if not suggestions:
        budget = words(python="budget_cells", shell="--cells")
        yield Paragraph(f"None that the model does not have fits into {budget_cells:,} cells ({budget}).")
        return
    yield Grid(
        (number("NLLH", "+.4f"), number("log-odds", ".2f"), number("cells"), Column("table")),
        tuple((s.gain, s.shift, s.cells, s.name) for s in suggestions),
    )
    yield Paragraph(
        "By what the tables at hand leave open: the NLLH that a fit with the table may gain, and how far "
        "predicted log-odds may move. Good for the order: the gain can be several times more or less."
    )


def _misfit_blocks(misfit: Sequence[TableMisfit], own_tables: bool) -> Iterator[Block]:
    yield Heading("Does the model reproduce the tables?")
    yield Grid(
        (
            number("records", ".2f"),
            number("positives", ".2f"),
            number("penalty", ".2f"),
            Column("the tables farthest off"),
        ),
        tuple((m.z_records, m.z_positives, m.z_penalty, m.table) for m in misfit[:_SHOWN]),
        caption="Off by, in standard errors (root mean square of cells):",
    )
    if own_tables:
        expect = "Below 1 the model is nearer to them than another sample of records would be."
    else:
        expect = "These are not the tables that the model was fitted to: expect 1 or a little more."
    yield Paragraph(
        f"{expect} The penalty holds predictions back on purpose: its column is how much of the positives' "
        "that explains."
    )
    yield from _cells(misfit)


def _mixing_blocks(mixing: Mixing) -> Iterator[Block]:
    if not mixing.sweeps:
        yield Heading("Do its chains move?")
        yield Paragraph(f"There are none: its law of X is that of {mixing.chains:,} records that it keeps.")
        return
    slow = ", ".join(f"{m.name} {_sweeps(m, mixing)}" for m in mixing.features[:_NAMED])
    yield Heading("Do its chains move?")
    yield Paragraph(
        f"{mixing.chains:,} chains, watched for {mixing.sweeps} sweeps. Sweeps until a chain has forgotten "
        f"where it was: log-odds {_sweeps(mixing.score, mixing)}; the slowest features {slow}. All that was "
        f"seen is worth {mixing.score.draws:,.0f} independent draws. Two halves of the chains differ by "
        f"{abs(mixing.halves_z):.1f} standard errors in their mean log-odds."
    )


def _reliance_blocks(alone: Sequence[Reliance], joint: Sequence[Reliance]) -> Iterator[Block]:
    sides = ([(r.share, r.name) for r in side[:_SHOWN]] for side in (alone, joint))
    yield Heading("What do predictions rest on?")
    yield Grid(
        (
            number("share", ".1%"),
            Column("one feature alone"),
            number("share", ".1%"),
            Column("what only features together tell"),
        ),
        tuple((*left, *right) for left, right in zip_longest(*sides, fillvalue=(None, None))),
        caption="Shares of the variance of the log-odds:",
    )


def _check_blocks(check: Sequence[TableMisfit]) -> Iterator[Block]:
    yield Heading("Does it agree with the tables given to check by?")
    yield Grid(
        (
            number("records", ".2f"),
            number("positives", ".2f"),
            number("new: records", ".2f"),
            number("new: positives", ".2f"),
            number("NLLH to gain", ".4f"),
            Column("table"),
        ),
        tuple(
            (
                m.z_records,
                m.z_positives,
                m.new_records,
                m.new_positives,
                Measured(m.gain, m.gain_se),
                m.table,
            )
            for m in check[:_SHOWN]
        ),
        caption="Off by, in standard errors:",
    )
    yield Paragraph(
        "New is what the tables that the model has of the same features do not explain: about 1 where there "
        "is nothing. NLLH to gain: what the right rate of positives in each cell would add."
    )
    yield from _cells(check)


def _cells(found: Sequence[TableMisfit]) -> Iterator[Block]:
    worst = sorted((c for m in found for c in m.worst), key=lambda c: -abs(c.z))[:_SHOWN]
    if worst:
        yield Grid(
            (
                number("off by", "+.1f"),
                number("given", ",.0f"),
                number("expected", ",.1f"),
                Column("the cells farthest off"),
            ),
            tuple((c.z, c.given, c.expected, f"{c.what} of {c.cell}") for c in worst),
        )


def _sweeps(memory: Memory, mixing: Mixing) -> str:
    """A time, as far as so many sweeps can tell it."""
    return f"{memory.time:.1f}" if memory.time < mixing.sweeps else f"over {mixing.sweeps}"
