"""What a budget buys, before it is spent: noise is simulated on the holder's side, fitted to, and judged.

The plan looks at the exact tables as often as it likes. **It is not private**: it is for the holder's eyes.

Records are binned as finely as a release with the same budget would have it (:mod:`.privacy.binning`), unless
told otherwise. Beside the tables given, others that cost less are tried (:mod:`agglearn.privacy.choices`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from agglearn.aggregation.api import aggregate_split
from agglearn.aggregation.options import AggregateOptions
from agglearn.errors import InputError, TableError
from agglearn.judge.evaluate import evaluate
from agglearn.model.draw import sample
from agglearn.model.fitting import fit
from agglearn.privacy.binning import fewer_bins
from agglearn.privacy.budget import Budget
from agglearn.privacy.choices import choices_of
from agglearn.privacy.release import USUAL_DELTA, ask_for_tables, require_exact, simulate
from agglearn.records.frames import FrameSource
from agglearn.records.sources import open_source
from agglearn.records.split import assign
from agglearn.report.document import (
    Block,
    Column,
    Document,
    Figure,
    Grid,
    Heading,
    Measured,
    Note,
    Paragraph,
    Value,
    number,
)
from agglearn.report.finding import Finding
from agglearn.runtime.options import at_least
from agglearn.runtime.progress import meter
from agglearn.tables.data import AggregatedData
from agglearn.tables.table import Scope
from agglearn.train.settings import FitSettings

EPSILONS = (0.3, 1.0, 3.0, 10.0)
SETTINGS = FitSettings(chains=5000, iterations=150)
"""A fit that is quick, and near enough to a full one to compare choices by."""

_TEST = "test"
_DRAWN = 20_000  # records to judge on where there are tables only
_BAR = 40  # places of the longest bar
_BLOCKS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class Outcome:
    """What one choice of tables gave for one ε.

    Attributes
    ----------
    choice
        Which tables.
    epsilon
        Of the budget; None for exact tables.
    sigma
        The noise on each number.
    nllh
        One for each seed; a fit that noise left without anything to learn counts as a constant, 0.
    """

    choice: str
    epsilon: float | None
    sigma: float
    nllh: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.nllh))

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds."""
        return float(np.std(self.nllh, ddof=1)) if len(self.nllh) > 1 else 0.0


@dataclass(frozen=True, repr=False)
class Plan(Finding):
    """What each budget would buy.

    Attributes
    ----------
    outcomes
        For each choice of tables and each ε.
    tables
        The tables of each choice, to be asked for.
    delta, mechanism
        The rest of the budget.
    judged
        What the scores were taken on.
    """

    outcomes: tuple[Outcome, ...]
    tables: Mapping[str, tuple[Scope, ...]]
    delta: float
    mechanism: str
    judged: str

    def __repr__(self) -> str:
        return f"<Plan: {len(self.tables)} choices of tables, {len(self.epsilons)} budgets>"

    @property
    def epsilons(self) -> list[float]:
        """The budgets, increasing."""
        return sorted({o.epsilon for o in self.outcomes if o.epsilon is not None})

    def outcome(self, choice: str, epsilon: float | None) -> Outcome:
        """What a choice gave for an ε."""
        return next(o for o in self.outcomes if (o.choice, o.epsilon) == (choice, epsilon))

    def best(self, epsilon: float) -> Outcome:
        """The choice with the highest mean."""
        return max((o for o in self.outcomes if o.epsilon == epsilon), key=lambda o: o.mean)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return {
            "private": False,
            "delta": self.delta,
            "mechanism": self.mechanism,
            "judged": self.judged,
            "outcomes": [{**vars(o), "mean": o.mean, "spread": o.spread} for o in self.outcomes],
            "best": {f"{e:g}": self.best(e).choice for e in self.epsilons},
            "tables": {name: [list(scope) for scope in scopes] for name, scopes in self.tables.items()},
        }

    def document(self) -> Document:
        """The plan as a table and a plot."""
        return Document(
            title=f"what a budget buys: NLLH {self.judged}, δ = {self.delta:g}, {self.mechanism} noise",
            blocks=tuple(self._blocks()),
            warnings=(
                Note(
                    "this plan was made by looking at the exact records: it is not private, keep it",
                    "warning",
                    "not private",
                ),
            ),
            data=self.to_json(),
        )

    def _blocks(self) -> Iterator[Block]:
        columns = (
            Column("tables"),
            number("number"),
            *(number(f"ε = {e:g}", ".3f") for e in self.epsilons),
            number("exact", ".3f"),
        )
        rows = []
        for choice, scopes in self.tables.items():
            row: list[Value] = [choice, len(scopes)]
            for epsilon in self.epsilons:
                found = self.outcome(choice, epsilon)
                row.append(Measured(found.mean, found.spread) if len(found.nllh) > 1 else found.mean)
            rows.append((*row, self.outcome(choice, None).mean))
        yield Grid(columns, tuple(rows))
        yield Paragraph(
            "± is the spread over noises; 0 is a constant prediction, below it is worse than that"
        )
        yield Heading("What the noise leaves of it")
        yield Grid((Column("ε"), Column("tables"), Column("")), tuple(self._bars()))
        for choice in self.tables:
            found_all = [self.outcome(choice, e) for e in self.epsilons]
            yield Figure(
                choice,
                tuple(self.epsilons),
                tuple(o.mean for o in found_all),
                "line",
                tuple(o.spread for o in found_all),
            )

    def _bars(self) -> Iterator[tuple[Value, ...]]:
        top = max(o.mean for o in self.outcomes)
        for epsilon in self.epsilons:
            for number_, choice in enumerate(self.tables):
                found = self.outcome(choice, epsilon)
                told = f" {found.mean:.3f}" + (" best" if found == self.best(epsilon) else "")
                yield (f"{epsilon:g}" if number_ == 0 else "", choice, _bar(found.mean, top) + told)
        for number_, choice in enumerate(self.tables):
            mean = self.outcome(choice, None).mean
            yield ("exact" if number_ == 0 else "", choice, f"{_bar(mean, top)} {mean:.3f}")


def _bar(value: float, top: float) -> str:
    """A bar of blocks, in eighths of a place; nothing for what is worse than a constant."""
    eighths = round(8 * _BAR * max(value, 0.0) / top) if top > 0 else 0
    return _BLOCKS[8] * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def plan_records(
    data: Any,
    label: str,
    options: AggregateOptions,
    *,
    epsilons: Sequence[float] = EPSILONS,
    delta: float = USUAL_DELTA,
    mechanism: str = Budget.mechanism,
    max_records: int = 1,
    seeds: int = 3,
    test_share: float = 0.25,
    threads: int | None = None,
) -> Plan:
    """What budgets would buy, judged on records that are held out.

    Parameters
    ----------
    data, label, options
        Records, the label to predict, and how they become tables.
    epsilons, delta, mechanism, max_records
        The budgets to try.
    seeds
        How many noises to try each with.
    test_share
        Share of the records to judge on.
    threads
        Threads to use (all cores by default).
    """
    options = replace(options, split={_TEST: test_share})
    source = open_source(data, options.read)
    train = aggregate_split(source, label, options).train
    columns = [*train.schema.names, *train.schema.label_names]
    start, kept = 0, []
    for batch in source.batches(columns):
        part = assign(start, batch.num_rows, options.seed, options.split)
        kept.append(batch.filter(part == 1))
        start += batch.num_rows
    held_out = FrameSource(_table_of([pa.Table.from_batches([batch]) for batch in kept]))
    told = f"on {held_out.table.num_rows:,} records held out"
    budgets = _budgets(epsilons, delta, mechanism, max_records)
    coarser: dict[int | None, AggregatedData] = {None: train}

    def as_fine_as_it_pays(budget: Budget) -> AggregatedData:
        """The tables that a release with this budget would be made of."""
        bins = None
        if options.bins is None and options.schema is None:
            bins = fewer_bins(train.schema, train.rows, budget, ask_for_tables(train))
        if bins not in coarser:
            coarser[bins] = aggregate_split(source, label, replace(options, bins=bins)).train
        return coarser[bins]

    show = options.show_progress
    return _plan(train, label, budgets, seeds, held_out, told, threads, show, as_fine_as_it_pays)


def _table_of(parts: Sequence[Any]) -> Any:
    return pa.concat_tables(parts, promote_options="permissive").unify_dictionaries()


def plan_tables(
    data: AggregatedData,
    label: str | None = None,
    *,
    epsilons: Sequence[float] = EPSILONS,
    delta: float = USUAL_DELTA,
    mechanism: str = Budget.mechanism,
    max_records: int = 1,
    seeds: int = 3,
    threads: int | None = None,
    show_progress: bool = False,
) -> Plan:
    """What budgets would buy, judged on records drawn from a field that is fitted to the exact tables.

    That field is taken for the truth: what it missed of the records, no budget buys here.

    Parameters
    ----------
    data, label
        Exact tables, and the label to predict where there are several.
    epsilons, delta, mechanism, max_records, seeds, threads
        As for :func:`plan_records`.
    show_progress
        Whether to show on the terminal how far it is.
    """
    budgets = _budgets(epsilons, delta, mechanism, max_records)
    require_exact(data)
    name = data.schema.label_names[data.label_index(label)]
    truth = fit(data, SETTINGS, label=name, threads=threads)
    drawn = FrameSource(_table_of(list(sample(truth, _DRAWN, threads=threads))))
    told = f"on {_DRAWN:,} records drawn from a field fitted to the exact tables"
    return _plan(data, name, budgets, seeds, drawn, told, threads, show_progress)


def _budgets(epsilons: Sequence[float], delta: float, mechanism: str, max_records: int) -> list[Budget]:
    if not epsilons:
        raise InputError("no budget is given to plan for")
    return [
        Budget(epsilon=epsilon, delta=delta, mechanism=mechanism, max_records=max_records)
        for epsilon in sorted(set(epsilons))
    ]


def _plan(
    data: AggregatedData,
    label: str,
    budgets: Sequence[Budget],
    seeds: int,
    judged_on: FrameSource,
    judged: str,
    threads: int | None,
    show_progress: bool,
    made_for: Callable[[Budget], AggregatedData] | None = None,
) -> Plan:
    """``made_for`` gives the tables of a budget, where they are not the same for all."""
    require_exact(data)
    at_least(1, seeds=seeds)
    choices = choices_of(data)
    by_budget = {b.epsilon: choices_of(made_for(b)) if made_for else choices for b in budgets}
    outcomes = []
    with meter("fitting", len(choices) * (1 + len(budgets) * seeds), "fits", show=show_progress) as advance:

        def nllh(tables: AggregatedData, seed: int) -> float:
            try:
                model = fit(tables, replace(SETTINGS, seed=seed), label=label, threads=threads)
                return evaluate(model, judged_on, threads)[0].nllh
            except TableError:  # so much noise that no positive is left, or no record
                return 0.0
            finally:
                advance(1)

        for name, exact in choices.items():
            outcomes.append(Outcome(name, None, 0.0, (nllh(exact, 0),)))
            for budget in budgets:
                assert budget.epsilon is not None
                epsilon, scores, sigma = budget.epsilon, [], 0.0
                tables_then = by_budget[epsilon].get(name, exact)
                for seed in range(seeds):
                    noisy = simulate(
                        tables_then,
                        epsilon,
                        budget.delta,
                        budget.mechanism,
                        seed,
                        max_records=budget.max_records,
                    )
                    noise = next(iter(noisy.tables.values())).noise
                    sigma = noise.sigma if noise else 0.0
                    scores.append(nllh(noisy, seed))
                outcomes.append(Outcome(name, epsilon, sigma, tuple(scores)))
    tables = {name: tuple(exact.tables) for name, exact in choices.items()}
    return Plan(tuple(outcomes), tables, budgets[0].told_delta, budgets[0].mechanism, judged)
