"""Aggregated data taken apart into tables to fit to and tables to judge on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agglearn.errors import AgglearnError, InputError, TableError
from agglearn.field.problem import Problem, heldout_problem, make_problem
from agglearn.tables.data import AggregatedData, merge


@dataclass(frozen=True, eq=False)
class Fold:
    """Tables to fit to, and tables of other records to judge on."""

    train: Problem
    valid: Problem


def add_parts(parts: Sequence[AggregatedData]) -> AggregatedData:
    """The tables of all parts together, or why they cannot be added up."""
    if not parts:
        raise InputError("there are no tables to fit to")
    whole = parts[0]
    for number, part in enumerate(parts[1:], 2):
        for before, other in enumerate(parts[: number - 1], 1):
            if part.equals(other):
                raise InputError(f"part {number} is part {before} again: every record must be counted once")
        try:
            whole = whole + part
        except AgglearnError as error:
            raise type(error)(f"part {number}: {error}") from None
    return whole


def one_fold(train: AggregatedData, valid: AggregatedData, label: str | None = None) -> Fold:
    """Training tables and validation tables."""
    fold = Fold(make_problem(train, label), heldout_problem(valid, train, label))
    if fold.train.layout.buckets != fold.valid.layout.buckets:
        raise TableError("the validation tables are not hashed as the training tables are")
    if fold.train.fingerprint == fold.valid.fingerprint:
        raise InputError("the validation tables are the training tables: give tables of other records")
    return fold


def folds_of(parts: Sequence[AggregatedData], label: str | None = None) -> list[Fold]:
    """For each of several parts, the others to fit to and this one to judge on; one part has no others."""
    folds: list[Fold] = []
    if len(parts) < 2:
        return folds
    for number, part in enumerate(parts, 1):
        others = merge(other for other in parts if other is not part)
        try:
            folds.append(one_fold(others, part, label))
        except AgglearnError as error:
            raise type(error)(f"part {number}: {error}") from None
    return folds
