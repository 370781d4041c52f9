"""What a model learnt, term by term: a term is a feature alone, or the features of a table together.

The log-odds of a record are a base and what each term adds (:mod:`agglearn.field.parts`). Whatever has a
model inherits from :class:`Explainable` the questions one asks of it; answers are frames of the caller's
library.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from agglearn.errors import InputError
from agglearn.field.engines.exact import ExactEngine
from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.layout import Layout
from agglearn.field.parts import Parts, part_field
from agglearn.field.population import Chains, Population
from agglearn.records.sources import open_source
from agglearn.report.displays import EffectDisplay, ImportanceDisplay, InteractionDisplay
from agglearn.runtime.frames import library_of, make_frame
from agglearn.schema.features import Binned
from agglearn.schema.schema import Schema, require_columns, some
from agglearn.tables.cells import DenseCells
from agglearn.tables.table import Scope

Floats = npt.NDArray[np.float64]

BASE = "(base)"
LOG_ODDS = "(log-odds)"
_NO_SPREAD = 1e-12  # variance of log-odds that are all the same, but for rounding
_MOST_SHOWN = 1_000_000  # cells of an interaction
_KINDS = {1: "feature", 2: "pair", 3: "triple"}


@dataclass(frozen=True)
class Term:
    """What a model rests on, in one place.

    Attributes
    ----------
    features
        A feature, or those of a table together.
    spread
        Standard deviation over the records of what it adds to the log-odds.
    share
        Its share in the variance of the log-odds, Cov(term, log-odds) / Var(log-odds): these add up to 1,
        and one can be below 0 where a term takes back what others say.
    """

    features: Scope
    spread: float
    share: float

    @property
    def name(self) -> str:
        return " × ".join(self.features)

    @property
    def kind(self) -> str:
        """``feature``, ``pair``, ``triple``, or ``table`` for more."""
        return _KINDS.get(len(self.features), "table")


@dataclass(frozen=True, eq=False)
class Explanation:
    """A field in parts, and a law of X to take means over.

    Attributes
    ----------
    schema, field
        What the model is made of.
    population
        Members of its law of X.
    """

    schema: Schema
    field: Field
    population: Population

    @classmethod
    def of(cls, schema: Schema, field: Field, chains: Codes | None, rows: float) -> Explanation:
        """By the chains that a field was fitted with, or by every state where it had none."""
        if chains is None:
            return cls(schema, field, ExactEngine(field.layout, rows).population(field))
        return cls(schema, field, Chains(field.layout, chains))

    @cached_property
    def parts(self) -> Parts:
        return part_field(self.field, self.population.shares())

    @cached_property
    def _log_odds(self) -> Any:
        return self.population.scores(self.field.theta, self.field.intercept)

    @cached_property
    def _singles(self) -> Population:
        cards = self.field.layout.cards
        return self.population.over(Layout.plain(cards, [(f,) for f in range(len(cards))]))

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Every term, the one of largest spread first; tables over the same features are one."""
        layout, parts, names = self.field.layout, self.parts, self.schema.names
        mean = self.population.mean(self._log_odds)
        centred = self.population.map(lambda s: s - mean, self._log_odds)
        variance = self.population.moments(self._log_odds).variance
        worth = 1 / variance if variance > _NO_SPREAD else 0.0
        singles = self._singles
        shares, products = singles.shares(), singles.cells(centred)
        terms = []
        for f, name in enumerate(names):
            part = singles.layout.part(f)
            effect = parts.effect(f)
            spread = np.sqrt(max(float(shares[part] @ effect**2), 0.0))
            terms.append(Term((name,), float(spread), worth * float(effect @ products[part])))
        shares, products = self.population.shares(), self.population.cells(centred)
        for t in parts.joint:
            if layout.cells[t].tied:
                terms.append(self._sparse_term(t, centred, worth))
                continue
            part, rest = layout.part(t), parts.rests[t].reshape(-1)
            spread = np.sqrt(max(float(shares[part] @ rest**2), 0.0))
            scope = tuple(names[f] for f in layout.scopes[t])
            terms.append(Term(scope, float(spread), worth * float(rest @ products[part])))
        return tuple(sorted(terms, key=lambda term: -term.spread))

    def _sparse_term(self, t: int, centred: Any, worth: float) -> Term:
        """The term of a sparse table, member by member: its unseen cells share a weight, but no rest."""
        layout, parts = self.field.layout, self.parts
        scope, cards = layout.scopes[t], layout.cards
        over = Layout(
            cards,
            (scope, *((f,) for f in scope)),
            (layout.cells[t], *(DenseCells((cards[f],)) for f in scope)),
        )
        own = layout.table(self.field.theta, t) - parts.means[t]
        values = self.population.over(over).scores(np.concatenate([own, *(-e for e in parts.effects[t])]))
        spread = np.sqrt(float(self.population.mean(self.population.map(np.square, values))))
        shared = float(self.population.mean(self.population.map(np.multiply, values, centred)))
        return Term(tuple(self.schema.names[f] for f in scope), float(spread), worth * shared)

    def feature_columns(self, name: str) -> dict[str, Any]:
        """Of each value of a feature: its share of the records, its effect, and the rate predicted."""
        feature = self.schema.feature(name)
        f = self.schema.index[name]
        part = self._singles.layout.part(f)
        columns: dict[str, Any] = {"value": list(feature.modalities)}
        if isinstance(feature, Binned):
            columns |= dict(zip(("low", "high"), _bounds(feature), strict=True))
        share = self._singles.shares()[part]
        rate = self._singles.cells(self.population.map(expit, self._log_odds))[part]
        columns["share"] = share
        columns["effect"] = self.parts.effect(f)
        columns["rate"] = np.divide(rate, share, out=np.full(share.size, np.nan), where=share > 0)
        return columns

    def table_of(self, features: Scope) -> int:
        """The table of exactly these features, in whatever order, or why there is none."""
        for name in features:
            self.schema.feature(name)
        wanted = tuple(sorted({self.schema.index[name] for name in features}))
        for t, scope in enumerate(self.field.layout.scopes):
            if scope == wanted and t in self.parts.joint:
                return t
        tables = [
            " × ".join(self.schema.names[f] for f in self.field.layout.scopes[t]) for t in self.parts.joint
        ]
        raise InputError(
            f"the model has no table of {' × '.join(features)} together: "
            + (f"it has {some(tables)}" if tables else "its tables are of single features")
        )

    def shows(self, features: Scope) -> bool:
        """Whether these features have few enough combinations to show each."""
        cards = [self.field.layout.cards[self.schema.index[name]] for name in features]
        return prod(cards) <= _MOST_SHOWN

    def cell_columns(self, features: Scope) -> dict[str, Any]:
        """Of each combination of values in a table: its share, what it adds, and the rate predicted."""
        t = self.table_of(features)
        layout = self.field.layout
        scope = layout.scopes[t]
        cards = [layout.cards[f] for f in scope]
        if not self.shows(features):
            raise InputError(
                f"{' × '.join(features)} has {prod(cards):,} combinations, and {_MOST_SHOWN:,} is the most "
                "that is shown"
            )
        codes = np.indices(cards).reshape(len(cards), -1)
        alone = self.population.over(Layout.plain(layout.cards, [scope]))
        share = alone.shares()
        rate = alone.cells(self.population.map(expit, self._log_odds))
        interaction = self.parts.rest_of(t, codes)
        effects = sum(self.parts.effect(f)[codes[k]] for k, f in enumerate(scope))
        texts = [np.array(self.schema.features[f].modalities, object) for f in scope]
        return {
            **{self.schema.names[f]: texts[k][codes[k]] for k, f in enumerate(scope)},
            "share": share,
            "interaction": interaction,
            "effect": effects + interaction,
            "rate": np.divide(rate, share, out=np.full(share.size, np.nan), where=share > 0),
        }

    def term_names(self) -> list[str]:
        """The columns of :meth:`contributions`."""
        layout, names = self.field.layout, self.schema.names
        return [*names, *(" × ".join(names[f] for f in layout.scopes[t]) for t in self.parts.joint)]

    def contributions(self, codes: Codes) -> Floats:
        """What each term adds to the log-odds of coded records, a row for each record."""
        return np.hstack(self.parts.contributions(codes))


def _bounds(feature: Binned) -> tuple[list[float], list[float]]:
    """Where each bin begins and ends; the outer ones by the range of the values, missing has neither."""
    edges = [cut.value for cut in feature.cuts]
    low = [min([feature.low, *edges[:1]]), *edges]
    high = [*edges, max([feature.high, *edges[-1:]])]
    missing = [float("nan")] * feature.missing
    return low + missing, high + missing


class Explainable:
    """Questions that one asks of a fitted model; answers are frames of the caller's library.

    ``library`` is ``pandas``, ``polars`` or ``pyarrow``, by default the first of them that is installed.
    """

    def explanation(self) -> Explanation:
        """The model in parts."""
        raise NotImplementedError

    def importance(self, library: str | None = None) -> Any:
        """What the predictions rest on: a row for each feature and each table's features together.

        Columns are ``term``, ``kind``, ``spread`` (standard deviation of what the term adds to the log-odds,
        over records of the model's law) and ``share`` (of the variance of the log-odds: these add up to 1).

        Examples
        --------
        >>> import agglearn
        >>> records = {"colour": ["red", "blue"] * 50, "size": ["S", "S", "L", "L"] * 25,
        ...            "click": [1, 0, 1, 1] * 25}
        >>> model = agglearn.fit(agglearn.aggregate(records, "click"))
        >>> model.importance("pyarrow").column("term").to_pylist()[:2]
        ['size', 'colour']
        """
        terms = self.explanation().terms
        return make_frame(
            {
                "term": [term.name for term in terms],
                "kind": [term.kind for term in terms],
                "spread": [term.spread for term in terms],
                "share": [term.share for term in terms],
            },
            library,
        )

    def effects(self, feature: str, library: str | None = None) -> Any:
        """What each value of a feature adds to the log-odds by itself.

        Columns are ``value``, for numbers where the bin begins and ends (``low``, ``high``), ``share`` of the
        records, ``effect`` and ``rate`` (the mean probability predicted for records of that value).
        """
        return make_frame(self.explanation().feature_columns(feature), library)

    def interaction(self, *features: str, library: str | None = None) -> Any:
        """What two (or more) features of one table add together: a row for each combination of values.

        Columns are the features, ``share`` of the records, ``interaction`` (what they add beyond their single
        effects), ``effect`` (both) and ``rate`` (the mean probability predicted).
        """
        return make_frame(self.explanation().cell_columns(features), library)

    def explain(self, records: Any, library: str | None = None) -> Any:
        """What each term adds to the log-odds of each record, exactly.

        A row for each record and a column for each feature and each table's features together; with
        ``(base)`` they add up to ``(log-odds)``, which is what ``predict_proba`` is the logistic of. A value
        that the model does not know silences the tables that hold it, and what these would have said on
        average is taken back in the column of its feature.
        """
        found = self.explanation()
        source = open_source(records)
        names = found.schema.names
        require_columns(names, source.columns)
        width = len(found.term_names())
        blocks = [np.zeros((0, width))]
        log_odds = [np.zeros(0)]
        for batch in source.batches(list(names)):
            codes = found.schema.encode(batch)
            blocks.append(found.contributions(codes))
            log_odds.append(found.field.log_odds(codes))
        table = np.concatenate(blocks)
        columns = {
            BASE: np.full(len(table), found.parts.base),
            **dict(zip(found.term_names(), table.T, strict=True)),
            LOG_ODDS: np.concatenate(log_odds),
        }
        return make_frame(columns, library or library_of(records))

    def plot_importance(self, *, top: int = 20, ax: Any = None) -> ImportanceDisplay:
        """A bar for each of the ``top`` terms, with matplotlib."""
        terms = self.explanation().terms[:top]
        display = ImportanceDisplay([term.name for term in terms], [term.spread for term in terms])
        return display.plot(ax=ax)

    def plot_effects(self, feature: str, *, ax: Any = None) -> EffectDisplay:
        """The effect of each value of a feature, numbers as a curve, with matplotlib."""
        return EffectDisplay(feature, self.explanation().feature_columns(feature)).plot(ax=ax)

    def plot_interaction(self, *features: str, ax: Any = None) -> InteractionDisplay:
        """A heat map of what two features add together, with matplotlib."""
        if len(features) != 2:
            raise InputError(f"a heat map shows two features, and {len(features)} were given")
        first, second = features
        found = self.explanation()
        feature, other = found.schema.feature(first), found.schema.feature(second)
        grid = np.asarray(found.cell_columns(features)["interaction"], float)
        if found.schema.index[first] < found.schema.index[second]:
            grid = grid.reshape(feature.n_modalities, -1)
        else:
            grid = grid.reshape(other.n_modalities, -1).T
        return InteractionDisplay(first, second, feature.modalities, other.modalities, grid).plot(ax=ax)
