"""From a survey of the columns to a schema: which kind each is, and how it is coded.

Every decision comes with the reason it was taken, in one line a person can read and overrule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agglearn.errors import InputError
from agglearn.records.binning import Floats, Ints, quantile_cuts, width_cuts
from agglearn.records.options import Coding
from agglearn.records.roles import matches
from agglearn.records.survey import ColumnSurvey
from agglearn.runtime.speech import option, words
from agglearn.schema.features import Binned, Categorical, Cut, Feature
from agglearn.schema.schema import Label, some
from agglearn.schema.values import key, of_one_kind, same_value

_FEW = 20  # so few distinct integers are taken for categories
_CODE_NAME = re.compile(r"(^|[_\-. ])(u?id|ids|code|zip|zipcode|postcode|(hash|cat)[_-]?\d*)$", re.IGNORECASE)
_MOSTLY = 0.9
_ENOUGH = 50  # records: among fewer, different values are no sign of an identifier

_MANY, _SEEN_ENOUGH = 100, 3  # see usual_least
_RECORDS_A_BIN, _FEWEST_BINS, _MOST_BINS = 25, 10, 20  # see usual_bins


LEFT_OUT = "left out"
"""The kind of a column that is no feature."""


@dataclass(frozen=True)
class ColumnNote:
    """What was decided about a column, for a person to read.

    ``single`` says why its values point at single records, where they do.
    """

    name: str
    kind: str
    modalities: int
    missing: int
    why: str
    single: str | None = None

    def to_json(self) -> dict[str, str | int]:
        """What there is to say, as plain JSON values."""
        return {name: value for name, value in vars(self).items() if value is not None}


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


def why_left_out(survey: ColumnSurvey, coding: Coding) -> str | None:
    """Why a column that nobody named is no feature: its values point at single records. None if it is one."""
    if survey.name in coding.edges or matches(survey.name, (*coding.categorical, *coding.numeric)):
        return None
    what = why_single(survey)
    return what and f"{what} (to have it as a feature, name it: {option('categorical', survey.name)})"


def why_single(survey: ColumnSurvey) -> str | None:
    """Why the values of a column point at single records, if they do.

    An identifier would put every record into a cell of its own, with its label; so would a time.
    """
    present = survey.rows - survey.missing
    if survey.value_type == "timestamp":
        return "a time"
    if survey.n_seen > _MOSTLY * present >= _MOSTLY * _ENOUGH and not _is_quantity(survey)[0]:
        about = "" if survey.exact else "about "
        return f"{about}{min(survey.n_seen, present):,} values in {present:,} records, an identifier"
    return None


def learn_label(label: Label, survey: ColumnSurvey | None) -> Label:
    """The label with its negative value, where there is just one."""
    if survey is None or label.positive is None:
        return label
    others = {key(t) or t.strip(): t.strip() for t in survey.texts()[0] if not same_value(t, label.positive)}
    return replace(label, negative=next(iter(others.values()))) if len(others) == 1 else label


def check_told(coding: Coding, names: Sequence[str]) -> None:
    """Refuse options about columns that are not there."""
    for kind, patterns in (("categorical", coding.categorical), ("numeric", coding.numeric)):
        for pattern in patterns:
            if not any(matches(name, (pattern,)) for name in names):
                told = option(kind, repr(pattern))
                raise InputError(f"{told} names no feature: there are {some(names)}")
    for name in coding.edges:
        if name not in names:
            raise InputError(f"{option('edges', repr(name))} names no feature: there are {some(names)}")


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
    texts, counts, value_type, merged = _vocabulary(survey)
    by_count = np.argsort(-counts, kind="stable")
    least = coding.min_modality_count or usual_least(counts)
    common = by_count[counts[by_count] >= least]
    keep = common[: coding.max_modalities]
    folded = len(texts) - len(keep)
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
        rare = f"values seen fewer than {least} times" if len(keep) == len(common) else "rare values"
        why += f"; {more}{folded:,} {rare} folded into one ({share:.1%} of the records)"
    if merged:
        why += f"; {merged:,} of its writings are other ways to write the same value"
    return feature, _note(feature, survey, why)


def _vocabulary(survey: ColumnSurvey) -> tuple[list[str], Ints, str, int]:
    """The values of a column with their counts, their type, and how many writings were of another's value."""
    texts, counts = survey.texts()
    found = of_one_kind(texts) if survey.value_type in ("string", "integer", "float", "boolean") else None
    if found is None:
        return texts, counts, survey.value_type, 0
    written, value_type = found
    order = sorted(set(written)) if value_type == "boolean" else written  # numbers are in order already
    summed: dict[str, int] = dict.fromkeys(order, 0)
    for text, n in zip(written, counts.tolist(), strict=True):
        summed[text] += n
    return list(summed), np.array(list(summed.values()), np.int64), value_type, len(texts) - len(summed)


def usual_least(counts: Ints) -> int:
    """How often a value is to be seen to be kept, where nobody says, by how often each of a column is.

    One that is seen once or twice cannot be learnt from, and in a column of many such they are most of the
    cells.
    """
    rare = int((counts < _SEEN_ENOUGH).sum())
    return _SEEN_ENOUGH if len(counts) > _MANY and rare > 1 else 1  # one alone would only change its name


def usual_bins(records: int) -> int:
    """How many bins a numeric column has where nobody says.

    With a penalty of its own for each table, more bins hardly ever lose: on validation records 20 instead of
    10 gained 0.016 NLLH on Adult, 0.008 on Bank, 0.010 on credit and 0.004 on a tenth of Adult; 30 and 40
    gained or lost 0.002, and cost cells. A bin should hold some tens of records.
    """
    return min(max(records // _RECORDS_A_BIN, _FEWEST_BINS), _MOST_BINS)


def _binned(survey: ColumnSurvey, coding: Coding, why: str) -> tuple[Feature, ColumnNote]:
    values, counts = survey.some_numbers()
    if not len(values):
        raise InputError(f"column {survey.name!r} has no number in it: it cannot be numeric")
    bins = coding.bins or usual_bins(int(counts.sum()))
    if survey.name in coding.edges:
        cuts = tuple(Cut(float(e)) for e in sorted(set(coding.edges[survey.name])))
    elif coding.binning == "width":
        cuts = width_cuts(values[0], values[-1], bins)
        why += f"; {bins} bins of equal width"
    else:
        cuts = quantile_cuts(values, counts, bins)
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
