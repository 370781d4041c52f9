"""Which tables: sets of features by name, asked for in a word or one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

from agglearn.errors import InputError
from agglearn.runtime.memory import require
from agglearn.runtime.options import AUTO
from agglearn.runtime.speech import option
from agglearn.schema.schema import Schema
from agglearn.tables.cells import Cells, cells_for
from agglearn.tables.table import Scope

_WORDS = {1: "singles", 2: "pairs", 3: "triples"}
_BYTES_A_TABLE = 8192  # of a small one: measured, with what is written of it


def parse_scopes(spec: str | Iterable[Sequence[str]], schema: Schema) -> list[Scope]:
    """The tables that a specification asks for, as tuples of features in schema order.

    ``singles``, ``pairs``, ``triples`` and ``a*b*c`` can be joined by commas; ``auto`` is pairs, beside which
    whoever has the records may count more.
    """
    orders = {word: order for order, word in _WORDS.items()} | {AUTO: 2}
    terms: list[str | Sequence[str]] = list(spec.split(",")) if isinstance(spec, str) else list(spec)
    scopes: dict[Scope, None] = {}
    for term in terms:
        word = term.strip() if isinstance(term, str) else ""
        if word in orders:
            # A single feature has no pair: its own table is all there can be.
            order = min(orders[word], len(schema.names))
            _require_memory(comb(len(schema.names), order), _WORDS[orders[word]], len(schema.names))
            found: Iterable[Scope] = combinations(schema.names, order)
        else:
            names = word.split("*") if isinstance(term, str) else list(term)
            names = [n.strip() if isinstance(term, str) else n for n in names]
            for name in names:
                schema.feature(name)
            if len(set(names)) != len(names) or not names:
                raise InputError(f"table {'*'.join(names)!r} names a feature twice, or none")
            found = [tuple(sorted(names, key=schema.index.__getitem__))]
        scopes.update(dict.fromkeys(found))
    if not scopes:
        raise InputError("no table is asked for")
    return list(scopes)


def _require_memory(tables: int, word: str, features: int) -> None:
    """Refuse more tables than can be held, before they are even listed."""
    what = f"{tables:,} tables, all {word} of {features:,} features,"
    advice = (
        f"name fewer features with {option('features')}, or the tables that matter with {option('tables')}"
    )
    require(tables * _BYTES_A_TABLE, what, advice)


def shape_of(scope: Scope, schema: Schema) -> tuple[int, ...]:
    """Modalities along each axis of a table."""
    return tuple(schema.feature(name).n_modalities for name in scope)


def cells_of(scope: Scope, schema: Schema, hash_size: int | None = None) -> Cells:
    """The cells of a table: buckets where it would have more than ``hash_size`` of them."""
    return cells_for(shape_of(scope, schema), hash_size)
