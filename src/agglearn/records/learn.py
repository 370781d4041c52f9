"""From a survey of the columns to a schema: which kind each is, and how it is coded.

Every decision comes with the reason it was taken, in one line a person can read and overrule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from agglearn.errors import InputError
from agglearn.records.survey import ColumnSurvey
from agglearn.runtime.speech import option, words
from agglearn.schema.features import Binned, Categorical, Cut, Encoded, Feature
from agglearn.schema.schema import Label

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

_FEW = 20  # so few distinct integers are taken for categories
_CODE_NAME = re.compile(r"(^|[_\-. ])(u?id|ids|code|zip|zipcode|postcode|(hash|cat)[_-]?\d*)$", re.IGNORECASE)
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_MOSTLY = 0.9


@dataclass(frozen=True)
class Coding:
    """How columns are to be coded where nobody says otherwise.

    Attributes
    ----------
    categorical, numeric
        Columns (names or patterns such as ``cat*``) whose kind is given.
    bins, binning
        Number of intervals of a numeric column, ``quantile`` or ``width``.
    edges
        Given edges of some numeric columns.
    max_modalities
        A categorical column keeps at most so many values; the rarer share one modality.
    min_modality_count
        Values rarer than this share one modality.
    """

    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    bins: int = 10
    binning: str = "quantile"
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    max_modalities: int = 1000
    min_modality_count: int = 1

    def __post_init__(self) -> None:
        if self.binning not in ("quantile", "width"):
            raise InputError(f"binning {self.binning!r} is not quantile or width")
        for name, value, least in (
            ("bins", self.bins, 2),
            ("max_modalities", self.max_modalities, 2),
            ("min_modality_count", self.min_modality_count, 1),
        ):
            if value < least:
                raise InputError(f"{option(name, str(value))} is too few: {least} is the least")


@dataclass(frozen=True)
class ColumnNote:
    """What was decided about a column, for a person to read."""

    name: str
    kind: str
    modalities: int
    missing: int
    why: str


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a column is named by one of the patterns."""
    return any(name == p or fnmatchcase(name, p) for p in patterns)


def learn_feature(survey: ColumnSurvey, coding: Coding) -> tuple[Feature, ColumnNote]:
    """The feature a column becomes, and why."""
    name = survey.name
    if matches(name, coding.categorical) and matches(name, coding.numeric):
        raise InputError(f"column {name!r} is asked to be both categorical and numeric")
    if survey.missing == survey.rows:
        raise InputError(f"column {name!r} has no value in any record: leave it out with {option('exclude')}")
    if name in coding.edges:
        numeric, why = True, "edges given"
    elif matches(name, coding.categorical):
        numeric, why = False, "as told"
    elif matches(name, coding.numeric):
        numeric, why = True, "as told"
    else:
        numeric, why = _is_quantity(survey)
    if numeric:
        return _binned(survey, coding, why)
    return _categorical(survey, coding, why)


def learn_label(label: Label, survey: ColumnSurvey | None) -> Label:
    """The label with its negative value, where there is just one."""
    if survey is None:
        return label
    others = [text for text in survey.texts()[0] if text.strip() != label.positive]
    return replace(label, negative=others[0].strip()) if len(others) == 1 else label


def _is_quantity(survey: ColumnSurvey) -> tuple[bool, str]:
    """Whether a column's values are amounts, or names that may happen to be numbers."""
    if survey.value_type in ("boolean", "date", "time", "timestamp"):
        return False, survey.value_type
    found = survey.numbers()
    if found is None:
        return False, _text_reason(survey)
    values, _ = found
    n = len(values)
    if not np.all(values == np.floor(values)):
        return True, "numbers"
    if _CODE_NAME.search(survey.name):
        return False, f"{n:,} distinct integers, named like codes ({_told('numeric', survey)})"
    if n <= _FEW:
        return False, f"{n} distinct integers ({_told('numeric', survey)})"
    if _looks_hashed(values):
        return False, f"{n:,} distinct integers, spread like hashes ({_told('numeric', survey)})"
    return True, f"{n:,} distinct integers ({_told('categorical', survey)})"


def _told(kind: str, survey: ColumnSurvey) -> str:
    """How to say that a column is of the other kind."""
    name = repr(survey.name) if " " in survey.name else survey.name
    doubt = "a quantity?" if kind == "numeric" else "codes?"
    return f"{doubt} {words(python=f'{kind}=[{survey.name!r}]', shell=f'--{kind} {name}')}"


def _text_reason(survey: ColumnSurvey) -> str:
    odd = survey.n_not_numbers()
    present = survey.rows - survey.missing
    if odd < (1 - _MOSTLY) * present:
        return (
            f"{odd:,} of {present:,} values are not numbers, so all are read as text "
            f"({_told('numeric', survey)})"
        )
    if survey.n_distinct > _MOSTLY * present and present > 100:
        leave = option("exclude")
        return f"text, nearly every value different (an identifier? leave it out with {leave})"
    return "text"


def _looks_hashed(values: Floats) -> bool:
    """Whether distinct integers lie evenly over a range far wider than their number."""
    span = values[-1] - values[0]
    if span < 1000 * len(values):
        return False
    even = (np.arange(len(values)) + 0.5) / len(values)
    # Kolmogorov-Smirnov distance to the uniform law; 1.63/√n is its 1 % point.
    distance = float(np.max(np.abs((values - values[0]) / span - even)))
    return distance < 1.63 / float(np.sqrt(len(values))) + 0.5 / len(values)


def _categorical(survey: ColumnSurvey, coding: Coding, why: str) -> tuple[Feature, ColumnNote]:
    texts, counts = survey.texts()
    by_count = np.argsort(-counts, kind="stable")
    keep = by_count[counts[by_count] >= coding.min_modality_count][: coding.max_modalities]
    folded = len(texts) - len(keep)
    value_type = survey.value_type
    if value_type in ("string", "float") and all(_INTEGER.fullmatch(t) for t in texts):
        value_type = "integer"  # read from text, or with gaps from pandas
    feature = Categorical(
        name=survey.name,
        values=tuple(texts[i] for i in np.sort(keep)),
        value_type=value_type,
        other=folded > 0 or not survey.exact,
        missing=survey.missing > 0,
    )
    if folded:
        share = counts[by_count][len(keep) :].sum() / max(counts.sum(), 1)
        more = "" if survey.exact else "more than "
        why += f"; {more}{folded:,} rare values folded into one ({share:.1%} of the records)"
    return feature, _note(feature, survey, why)


def _binned(survey: ColumnSurvey, coding: Coding, why: str) -> tuple[Feature, ColumnNote]:
    values, counts = survey.some_numbers()
    if not len(values):
        raise InputError(f"column {survey.name!r} has no number in it: it cannot be numeric")
    if survey.name in coding.edges:
        cuts = tuple(Cut(float(e)) for e in sorted(set(coding.edges[survey.name])))
    elif coding.binning == "width":
        cuts = width_cuts(values[0], values[-1], coding.bins)
        why += f"; {coding.bins} bins of equal width"
    else:
        cuts = quantile_cuts(values, counts, coding.bins)
        why += "; bins by quantiles"
    odd = survey.n_not_numbers()
    if odd:
        why += f"; {odd:,} values are not numbers and count as unknown"
    feature = Binned(
        name=survey.name,
        cuts=cuts,
        low=float(values[0]),
        high=float(values[-1]),
        integer=bool(np.all(values == np.floor(values))),
        missing=survey.missing > 0,
    )
    return feature, _note(feature, survey, why)


def _note(feature: Feature, survey: ColumnSurvey, why: str) -> ColumnNote:
    return ColumnNote(feature.name, feature.kind, feature.n_modalities, survey.missing, why)


def width_cuts(low: float, high: float, bins: int) -> tuple[Cut, ...]:
    """Cuts of equal width between two values."""
    edges = np.unique(np.linspace(low, high, bins + 1)[1:-1])
    return tuple(Cut(float(e)) for e in edges if low < e <= high)


def quantile_cuts(values: Floats, counts: Ints, bins: int) -> tuple[Cut, ...]:
    """Cuts that give every bin about as many records.

    A value that alone holds more than its share gets a bin of its own, and the other bins divide what
    is left on either side of it.
    """
    if len(values) <= bins:
        return tuple(Cut(float(v)) for v in values[1:])
    heavy = counts * bins > counts.sum()
    segments = _between(heavy)
    weights = [int(counts[a:b].sum()) for a, b in segments]
    shares = _shares(weights, [b - a for a, b in segments], bins - int(heavy.sum()))
    starts = np.zeros(len(values), bool)  # which values begin a bin
    starts[heavy] = True
    for (a, b), share in zip(segments, shares, strict=True):
        starts[[a, *(a + j for j in _even_starts(counts[a:b], share))]] = True
    return tuple(
        Cut(float(values[i - 1]), after=True) if heavy[i - 1] else Cut(float(values[i]))
        for i in np.flatnonzero(starts)
        if i > 0
    )


def _between(heavy: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Runs of values that are not heavy, as index ranges."""
    padded = np.concatenate([[True], heavy, [True]])
    starts = np.flatnonzero(padded[:-1] & ~padded[1:])
    stops = np.flatnonzero(~padded[:-1] & padded[1:])
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def _shares(weights: list[int], sizes: list[int], bins: int) -> list[int]:
    """Bins for each segment in proportion to its records: at least one, at most one a value."""
    shares = [1] * len(weights)
    for _ in range(bins - len(weights)):
        divisible = [i for i, size in enumerate(sizes) if shares[i] < size]
        neediest = max(divisible, key=lambda i: weights[i] / shares[i])
        shares[neediest] += 1
    return shares


def _even_starts(counts: Ints, bins: int) -> list[int]:
    """Where each bin after the first begins, so that all hold about as many records."""
    edges = np.concatenate([[0], np.cumsum(counts)])  # records before each value
    starts: list[int] = []
    at = 0
    for left in range(bins, 1, -1):
        target = edges[at] + (edges[-1] - edges[at]) / left
        stop = len(edges) - left + 1  # every later bin needs a value too
        at += 1 + int(np.argmin(np.abs(edges[at + 1 : stop] - target)))
        starts.append(at)
    return starts


def learn_encoding(
    name: str,
    values: Sequence[str],
    counts: Ints,
    positives: Ints,
    missing: bool,
    modalities: int,
) -> Encoded:
    """Codes by (count, rate) bins: about ``modalities`` of them, learnt on held-out records.

    Values are cut by how often they occur, each group holding about as many records, and every group
    by its smoothed rate. The first code is left to values the held-out records do not have.
    """
    base = positives.sum() / max(counts.sum(), 1)
    rate = (positives + 10 * base) / (counts + 10)
    by_count = max(1, round(np.sqrt(modalities) / 2))
    by_rate = max(1, (modalities - 1) // by_count)
    groups = ["never seen"]
    codes = np.zeros(len(values), np.int64)
    for a, b, members in _weight_groups(counts.astype(np.float64), counts, by_count):
        for low, high, inner in _weight_groups(rate[members], counts[members], by_rate):
            codes[members[inner]] = len(groups)
            groups.append(f"count {a:g}–{b:g}, rate {low:.2%}–{high:.2%} ({len(groups)})")
    return Encoded(
        name=name,
        groups=tuple(groups),
        values=tuple(values),
        codes=tuple(codes.tolist()),
        missing=missing,
    )


def _weight_groups(key: Floats, weights: Ints, bins: int) -> list[tuple[float, float, Ints]]:
    """Split items by a key into groups of about equal weight: (least key, greatest, members)."""
    distinct, inverse = np.unique(key, return_inverse=True)
    totals = np.bincount(inverse, weights=weights).astype(np.int64)
    starts = [0, *_even_starts(totals, min(bins, len(distinct))), len(distinct)]
    groups = []
    for a, b in pairwise(starts):
        members = np.flatnonzero((inverse >= a) & (inverse < b))
        groups.append((float(distinct[a]), float(distinct[b - 1]), members))
    return groups
