"""What is known of the columns without looking at the records.

A vocabulary or a bin edge that was learnt from records tells of them. So each column is one of three:

- *public* as it is: a schema gives its modalities;
- to be *paid for*: it is said to be categorical, or numeric within bounds, and what values or quantiles it
  has is learnt privately, out of the same budget;
- neither, and then nothing is released.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agglearn.errors import InputError, SchemaError
from agglearn.records.binning import width_cuts
from agglearn.records.options import Coding
from agglearn.records.roles import matches
from agglearn.runtime.files import read_json
from agglearn.runtime.speech import option
from agglearn.schema.features import KINDS, Binned, Categorical, Feature
from agglearn.schema.rules import Cut
from agglearn.schema.schema import Label, Schema, some
from agglearn.tables.format import load_schema

Bounds = Mapping[str, tuple[float, float]]

USUAL_BINS = 10  # not by the records: their number is not to be known


@dataclass(frozen=True)
class ToLearn:
    """A column whose modalities are to be paid for.

    Attributes
    ----------
    name
        The column.
    bounds
        Where its numbers lie; None where it has categories.
    """

    name: str
    bounds: tuple[float, float] | None = None

    @property
    def integer(self) -> bool:
        """Whether it holds whole numbers: taken from how its bounds are written."""
        return self.bounds is not None and all(isinstance(b, int) for b in self.bounds)


@dataclass(frozen=True)
class Known:
    """What is known of all feature columns, in their order, and of labels where a schema names them."""

    columns: tuple[Feature | ToLearn, ...]
    labels: tuple[Label, ...] = ()

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def to_learn(self) -> list[ToLearn]:
        return [column for column in self.columns if isinstance(column, ToLearn)]


def read_public(
    source: str | os.PathLike[str] | Schema, bounds: Bounds, coding: Coding | None = None
) -> Known:
    """A public schema: a file, an ``.agg`` folder or a :class:`Schema`.

    In a file a feature may lack its modalities: a categorical one its ``values``, a numeric one its ``cuts``
    where it has ``low`` and ``high`` (or bounds are given). Those are paid for, but for bins of equal width,
    which follow from the bounds.
    """
    if isinstance(source, Schema):
        return Known(source.features, source.labels)
    path = Path(source)
    if path.is_dir():
        return read_public(load_schema(path), bounds)
    document = read_json(path)
    if not isinstance(document.get("features"), list) or not document["features"]:
        raise SchemaError(f"{path}: not a schema (it has no list of features)")
    columns = tuple(_column(entry, bounds, coding or Coding(), str(path)) for entry in document["features"])
    if not document.get("labels"):
        return Known(columns)
    placeholder = {"features": [{"name": "", "kind": "categorical", "missing": False, "values": [""]}]}
    return Known(columns, Schema.from_json({**placeholder, "labels": document["labels"]}, str(path)).labels)


def _column(entry: Any, bounds: Bounds, coding: Coding, where: str) -> Feature | ToLearn:
    try:
        name, kind = str(entry["name"]), entry["kind"]
        if kind == "categorical" and "values" not in entry:
            return ToLearn(name)
        if kind == "numeric" and "cuts" not in entry:
            if name not in bounds and not {"low", "high"} <= entry.keys():
                raise SchemaError(_without_bounds(name))
            return _within(name, bounds.get(name) or (entry["low"], entry["high"]), coding)
        return KINDS[kind].from_json(entry)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SchemaError(f"{where}: not a schema ({type(error).__name__}: {error})") from None


def require_bounded(bounds: Bounds, names: Sequence[str]) -> None:
    """Refuse bounds of columns that are not there."""
    for name in bounds:
        if name not in names:
            raise InputError(f"{option('bounds', repr(name))} names no feature: there are {some(names)}")


def told_columns(names: Sequence[str], coding: Coding, bounds: Bounds) -> Known:
    """What options say of the columns, or which one nothing public is known of."""
    return Known(tuple(_told(name, coding, bounds) for name in names))


def _told(name: str, coding: Coding, bounds: Bounds) -> Feature | ToLearn:
    if name in coding.edges:
        edges = sorted({float(e) for e in coding.edges[name]})
        return Binned(name, True, tuple(map(Cut, edges)), edges[0], edges[-1])
    if name in bounds:
        return _within(name, bounds[name], coding)
    if matches(name, coding.numeric):
        raise InputError(_without_bounds(name))
    if matches(name, coding.categorical):
        return ToLearn(name)
    raise InputError(
        f"column {name!r}: its values would be learnt from the records, and nothing public is known of it; "
        f"give a schema with {option('public')}, say that it is {option('categorical')} or give its "
        f"{option('bounds')}, leave it out with {option('exclude')}, or take the risk with "
        f"{option('assume_public_schema')}"
    )


def _without_bounds(name: str) -> str:
    return (
        f"column {name!r}: its least and greatest value would be learnt from the records; give public ones "
        f"with {option('bounds')}, or its edges with {option('edges')}"
    )


def _within(name: str, bounds: tuple[Any, Any], coding: Coding) -> Feature | ToLearn:
    """A numeric column within bounds: bins of equal width follow from them, others are to be learnt."""
    low, high = bounds
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InputError(f"the bounds {low:g} and {high:g} of column {name!r} are not in order")
    column = ToLearn(name, (low, high))
    if coding.binning == "width":
        cuts = width_cuts(float(low), float(high), coding.bins or USUAL_BINS)
        return Binned(name, True, cuts, float(low), float(high), column.integer)
    return column


def require_public(schema: Schema, known: Known) -> None:
    """Refuse tables whose schema is not the public one, naming the column."""
    public = {column.name: column for column in known.columns}
    for feature in schema.features:
        given = public.get(feature.name)
        if given is None:
            raise SchemaError(f"column {feature.name!r} is in the tables and not in the public schema")
        if isinstance(given, ToLearn) or given.modalities != feature.modalities or given.rule != feature.rule:
            raise SchemaError(
                f"column {feature.name!r} is coded in the tables otherwise than in the public schema: "
                f"aggregate the records with it ({option('schema')})"
            )


def first_learnt(schema: Schema) -> str | None:
    """A column with modalities that may have been learnt from records; none has if it has just one."""
    for feature in schema.features:
        if isinstance(feature, Categorical) and feature.n_modalities < 2:
            continue
        return feature.name
    return None
