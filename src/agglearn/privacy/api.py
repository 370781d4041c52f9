"""One call from records or exact tables to private ones: what is public or paid for, and the ledger."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from agglearn.aggregation.api import Aggregation, aggregate_split
from agglearn.aggregation.options import AggregateOptions
from agglearn.aggregation.pushdown import is_lazy
from agglearn.errors import InputError
from agglearn.privacy.accounting import Ask, calibrate, told_accounting
from agglearn.privacy.binning import fewer_bins, private_bins
from agglearn.privacy.budget import PrivacyOptions
from agglearn.privacy.learn import learn_columns, moved
from agglearn.privacy.ledger import Ledger, Total, ledger_beside, spending
from agglearn.privacy.persons import bounded
from agglearn.privacy.public import (
    Known,
    ToLearn,
    first_learnt,
    read_public,
    require_bounded,
    require_public,
    told_columns,
)
from agglearn.privacy.release import ask_for_tables, noisy_tables, require_exact
from agglearn.privacy.selection import DELTA_SHARE, ask_for_common, common_cells
from agglearn.records.learn import ColumnNote, check_told
from agglearn.records.roles import Columns, make_labels
from agglearn.records.sources import open_source
from agglearn.runtime.options import AUTO, with_keywords
from agglearn.runtime.speech import option
from agglearn.schema.features import Categorical
from agglearn.schema.schema import Label, Schema, require_columns
from agglearn.spark.inputs import SPARK_INPUT, is_spark_input
from agglearn.tables.data import AggregatedData
from agglearn.tables.promise import Promise, Spending
from agglearn.tables.scopes import parse_scopes


@dataclass(frozen=True)
class Prepared:
    """Private tables that have not been written down as spent yet: nobody is to see them before they are.

    Attributes
    ----------
    result
        The tables.
    promise
        What they promise.
    ledgers
        Where that will be written down.
    total_epsilon
        The most that all releases of the same records may spend.
    """

    result: Aggregation
    promise: Promise
    ledgers: tuple[Ledger, ...]
    total_epsilon: float | None

    @contextmanager
    def booked(self, told: str) -> Iterator[list[Total]]:
        """Write the release down, and take it back if what is done in here fails."""
        with spending(self.ledgers, self.promise, self.total_epsilon, told) as after:
            yield after


def aggregate_private(
    data: Any,
    label: str | Sequence[str],
    privacy: PrivacyOptions,
    options: AggregateOptions | None = None,
    **keywords: Any,
) -> Aggregation:
    """Aggregate records into private tables, and write down in the ledger what was spent.

    Parameters
    ----------
    data, label, options, **keywords
        As in :func:`~agglearn.aggregation.api.aggregate_split`.
    privacy
        What may be spent, whose privacy it is, and what is public.
    """
    how = with_keywords(options or AggregateOptions(), keywords, "aggregate_private")
    if how.tables == AUTO:  # which tables there are must not depend on the records
        how = replace(how, tables="pairs")
    prepared = prepare_records(data, label, how, privacy)
    with prepared.booked("in memory"):
        return prepared.result


def release_tables(data: AggregatedData, privacy: PrivacyOptions) -> AggregatedData:
    """Private tables of exact ones; written down where ``privacy`` names a ledger."""
    prepared = prepare_tables(data, privacy)
    with prepared.booked("in memory"):
        return prepared.result.train


def prepare_tables(
    data: AggregatedData,
    privacy: PrivacyOptions,
    beside: Sequence[str | os.PathLike[str]] = (),
    *,
    show_progress: bool = False,
) -> Prepared:
    """Private tables of exact ones, not yet written down; ``beside`` is where they came from."""
    require_exact(data)
    if privacy.person is not None:
        raise InputError(
            f"tables do not tell whose the records were: {option('person')} is for records (say the most "
            f"that anyone has in the tables with {option('max_records')})"
        )
    schema = _how_known(data.schema, privacy)
    privacy.check_records(data.rows)
    spent, epsilon = calibrate(privacy, [_ask(data, privacy)], _for_cells(privacy))
    spent[-1] = replace(spent[-1], delta=_for_cells(privacy))
    ledgers = _ledgers(beside, privacy)
    unit = "record" if privacy.max_records == 1 else "person"
    promise = _promise(privacy, epsilon, spent, schema, unit, ledgers)
    for ledger in ledgers:
        ledger.check(promise, privacy.total_epsilon)
    noisy = _noisy(data, spent[-1], promise, privacy, show_progress)
    return Prepared(Aggregation({"train": noisy}, [], {}), promise, ledgers, privacy.total_epsilon)


def _ask(data: AggregatedData, privacy: PrivacyOptions) -> Ask:
    return ask_for_common(data) if privacy.cells == "common" else ask_for_tables(data)


def _for_cells(privacy: PrivacyOptions) -> float:
    """What of δ is set aside for cells that come to light."""
    return privacy.told_delta * DELTA_SHARE if privacy.cells == "common" else 0.0


def _noisy(
    data: AggregatedData, spending: Spending, promise: Promise, privacy: PrivacyOptions, show_progress: bool
) -> AggregatedData:
    release = common_cells if privacy.cells == "common" else noisy_tables
    return release(data, spending, promise, processes=privacy.processes, show_progress=show_progress)


def _how_known(schema: Schema, privacy: PrivacyOptions) -> str:
    if privacy.public is not None:
        require_public(schema, read_public(privacy.public, {}))
        return "public"
    column = first_learnt(schema)
    if column is not None and not privacy.assume_public_schema:
        raise InputError(
            f"column {column!r}: its values or bins may have been learnt from the records, and would leave "
            f"with the tables; show that they are public with {option('public')}, or take the risk with "
            f"{option('assume_public_schema')}"
        )
    return "assumed public" if privacy.assume_public_schema else "public"


def prepare_records(
    data: Any, label: str | Sequence[str], how: AggregateOptions, privacy: PrivacyOptions
) -> Prepared:
    """Private tables of records, not yet written down."""
    _refuse(how, privacy)
    if how.split or how.target_encode:
        # Whoever knew the seed could tell which record went where: a fresh one, which nobody is told.
        how = replace(how, seed=secrets.randbits(63))
    source: Any = data
    lazy = is_lazy(data)
    if lazy and privacy.person is not None:
        raise InputError(f"{option('person')} needs records that are read: a file or a frame, not a lazy one")
    if not lazy:
        source = open_source(data, how.read)
        if privacy.person is not None:
            source = bounded(source, privacy.person, privacy.max_records, show_progress=how.show_progress)
    known = None if privacy.assume_public_schema else _known(source, label, how, privacy, lazy)
    ledgers = _ledgers(_paths(data), privacy)
    return _count(source, label, how, privacy, known, ledgers)


def _count(
    source: Any,
    label: str | Sequence[str],
    how: AggregateOptions,
    privacy: PrivacyOptions,
    known: Known | None,
    ledgers: tuple[Ledger, ...],
) -> Prepared:
    """Learn what is to be paid for, count, and put noise on."""
    notes: list[ColumnNote] = []
    paid = [] if known is None else known.to_learn
    share = privacy.schema_share if paid else 0.0
    vocabularies = [column for column in paid if column.bounds is None]
    by_name = privacy.told_delta * share if vocabularies else 0.0
    if vocabularies and not by_name:
        raise InputError(
            f"column {vocabularies[0].name!r}: its values cannot be learnt with δ = 0; give them in a public "
            f"schema ({option('public')}), or {option('delta')}"
        )
    if known is None:
        exact = _as_fine_as_it_pays(source, label, how, privacy)
        asks = [_ask(exact.train, privacy)]
    else:
        n_labels = len(make_labels(label, how.positive))
        n_tables = len(parse_scopes(how.tables, _names_only(known.names)))
        extra = 1 if privacy.cells == "common" else 0  # the totals
        asks = [Ask("tables", 0, n_labels * (n_tables + extra), 1 - share)]
    if paid:
        asks.insert(0, _ask_for_columns(paid, share))
    spent, epsilon = calibrate(privacy, asks, by_name + _for_cells(privacy))
    spent[-1] = replace(spent[-1], delta=_for_cells(privacy))
    if paid:
        spent[0] = replace(spent[0], delta=by_name)
    schema = "assumed public" if known is None else "paid for" if paid else "public"
    promise = _promise(privacy, epsilon, spent, schema, privacy.unit, ledgers)
    for ledger in ledgers:
        ledger.check(promise, privacy.total_epsilon)
    if known is not None:
        bins = partial(private_bins, features=len(known.columns), spending=spent[-1])
        learnt = (
            learn_columns(source, paid, how, spent[0], bins, show_progress=how.show_progress) if paid else {}
        )
        features = tuple(learnt[c.name][0] if isinstance(c, ToLearn) else c for c in known.columns)
        notes = [learnt[c.name][1] for c in paid]
        labels = known.labels or make_labels(label, how.positive)
        given = replace(how, schema=Schema(features, labels), features=None, exclude=())
        exact = aggregate_split(source, label, given)
    privacy.check_records(sum(part.rows for part in exact.parts.values()))
    asked = _ask(exact.train, privacy)
    spent[-1] = replace(spent[-1], what=asked.what, numbers=asked.numbers * len(exact.parts))
    promise = replace(promise, spent=tuple(spent))
    parts = {
        name: _noisy(part, spent[-1], promise, privacy, how.show_progress)
        for name, part in exact.parts.items()
    }
    return Prepared(Aggregation(parts, notes, {}), promise, ledgers, privacy.total_epsilon)


def _as_fine_as_it_pays(
    source: Any, label: str | Sequence[str], how: AggregateOptions, privacy: PrivacyOptions
) -> Aggregation:
    """Exact tables of a schema assumed to be public, with no more bins than the budget is good for."""
    exact = aggregate_split(source, label, how)
    for note in exact.notes:
        if note.single is not None:
            raise InputError(
                f"column {note.name!r} points at single records ({note.single}), which no private table may "
                f"do: leave it out with {option('exclude')}, or give coarser values of it that are public "
                f"({option('public')})"
            )
    rows = sum(part.rows for part in exact.parts.values())
    bins = fewer_bins(exact.train.schema, rows, privacy, _ask(exact.train, privacy))
    if how.bins is not None or how.schema is not None or bins is None:
        return exact
    return aggregate_split(source, label, replace(how, bins=bins))


def _refuse(how: AggregateOptions, privacy: PrivacyOptions) -> None:
    """Refuse what would let records through."""
    if privacy.person is None and privacy.max_records != 1:
        raise InputError(f"{option('max_records')} needs {option('person')}: whose records are they?")
    if how.schema is not None and privacy.public is None:
        told, public = option("schema"), option("public")
        raise InputError(f"{told} does not say that the schema is public: give it as {public} if it is")
    if how.schema is not None:
        raise InputError(f"{option('schema')} and {option('public')} are two schemas: give one")
    if how.target_encode and not privacy.assume_public_schema:
        raise InputError(
            f"column {how.target_encode[0]!r}: a target encoding is learnt from the labels of the records; "
            f"give one in a public schema ({option('public')})"
        )


def _known(
    source: Any, label: str | Sequence[str], how: AggregateOptions, privacy: PrivacyOptions, lazy: bool
) -> Known:
    """What is public of the columns to be used."""
    labels = make_labels(label, how.positive)
    columns = Columns(how.features, how.exclude, labels)
    if privacy.public is not None:
        known = read_public(privacy.public, privacy.bounds, how)
        present = [*known.names, *(label.name for label in labels), *([] if lazy else source.columns)]
        wanted = columns.feature_names(list(dict.fromkeys(present)))
        require_columns(how.features or [], known.names, "feature")
        known = Known(tuple(c for c in known.columns if c.name in wanted), _same_labels(known.labels, labels))
    else:
        if lazy:
            raise InputError(
                f"a lazy source has no schema that is known without its records: give one with "
                f"{option('public')}, or take the risk with {option('assume_public_schema')}"
            )
        names = columns.feature_names(source.columns)
        check_told(how, names)
        known = told_columns(names, how, privacy.bounds)
    require_bounded(privacy.bounds, known.names)
    if lazy and known.to_learn:
        raise InputError(
            f"column {known.to_learn[0].name!r} would have to be learnt, which a lazy source is not read "
            "for: give its values or cuts in the public schema"
        )
    return known


def _same_labels(given: Sequence[Label], wanted: Sequence[Label]) -> tuple[Label, ...]:
    """Labels as asked for, with the negative value of the public schema where it names the same one."""
    known = {(label.name, label.positive): label for label in given}
    return tuple(known.get((label.name, label.positive), label) for label in wanted)


def _names_only(names: Sequence[str]) -> Schema:
    """A schema to count tables by, before anything is known but names."""
    return Schema(tuple(Categorical(name, False, ("",)) for name in names), ())


def _ask_for_columns(columns: Sequence[ToLearn], share: float) -> Ask:
    bins = sum(c.bounds is not None for c in columns)
    told = [f"bins of {bins} columns"] * bool(bins)
    told += [f"values of {len(columns) - bins} columns"] * (len(columns) > bins)
    steps = [moved(column) for column in columns]
    numbers = sum((2 << s) - 2 for s, c in zip(steps, columns, strict=True) if c.bounds is not None)
    return Ask(" and ".join(told), numbers, sum(steps), share)


def _promise(
    privacy: PrivacyOptions,
    epsilon: float,
    spent: Sequence[Spending],
    schema: str,
    unit: str,
    ledgers: Sequence[Ledger],
) -> Promise:
    return Promise(
        epsilon=epsilon,
        delta=privacy.told_delta,
        unit=unit,
        max_records=privacy.max_records,
        spent=tuple(spent),
        schema=schema,
        releases=(secrets.token_hex(16),),
        source=ledgers[0].source if ledgers else secrets.token_hex(16),
        accounting=told_accounting(privacy),
        rho=privacy.rho,
    )


def _paths(data: Any) -> list[str | os.PathLike[str]]:
    """The files or folders that records come from, if any."""
    given = [data] if isinstance(data, str | os.PathLike) else data if isinstance(data, list | tuple) else []
    found = [path for path in given if isinstance(path, str | os.PathLike) and not is_spark_input(path)]
    # A table that Spark knows by name has no place beside it.
    named = [str(text).removeprefix(SPARK_INPUT) for text in given if is_spark_input(text)]
    return [*found, *(path for path in named if Path(path).exists())]


def _ledgers(beside: Sequence[str | os.PathLike[str]], privacy: PrivacyOptions) -> tuple[Ledger, ...]:
    """The ledger that was named, or one beside each input; a glob's stands in its folder."""
    if privacy.ledger is not None:
        return (Ledger.read(privacy.ledger),)
    places = [Path(p) if Path(p).exists() else Path(p).parent for p in beside]
    paths = dict.fromkeys(ledger_beside(place) for place in places)
    if not paths and privacy.total_epsilon is not None:
        raise InputError(
            f"{option('total_epsilon')} needs a ledger to add up releases in: these records are no file, so "
            f"name one with {option('ledger')}"
        )
    return tuple(Ledger.read(path) for path in paths)
