"""Which columns are features, which are labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from agglearn.errors import InputError
from agglearn.runtime.speech import option
from agglearn.schema.schema import Label, require_columns, some


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a column is named by one of the patterns."""
    return any(name == p or fnmatchcase(name, p) for p in patterns)


@dataclass(frozen=True)
class Columns:
    """Which columns are features, which are labels."""

    features: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    labels: tuple[Label, ...] = ()

    def feature_names(self, present: Sequence[str]) -> list[str]:
        """Names of the feature columns among those present."""
        labels = [label.name for label in self.labels]
        require_columns(labels, present, "label")
        if self.features is not None:
            require_columns(self.features, present, "feature")
            for name in self.features:
                if name in labels:
                    raise InputError(f"column {name!r} cannot be both a feature and a label")
        for pattern in self.exclude:
            if not any(matches(name, (pattern,)) for name in present):
                told = option("exclude", repr(pattern))
                raise InputError(f"{told} names no column: there are {some(present)}")
        names = [n for n in self.features or present if n not in labels and not matches(n, self.exclude)]
        if not names:
            raise InputError("no feature is left: the records need one column besides the label")
        return names


def make_labels(label: str | Sequence[str], positive: str | Sequence[str | None] | None) -> tuple[Label, ...]:
    """Labels from their names and positive values."""
    names = [label] if isinstance(label, str) else list(label)
    values = [positive] if positive is None or isinstance(positive, str) else list(positive)
    if not names:
        raise InputError(f"no label is named: say which column to predict with {option('label')}")
    if len(values) == 1:
        values *= len(names)
    if len(values) != len(names):
        raise InputError(f"{len(values)} positive values were given for {len(names)} labels")
    return tuple(Label(n, None if v is None else str(v)) for n, v in zip(names, values, strict=True))
