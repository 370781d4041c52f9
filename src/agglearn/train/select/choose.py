"""Penalties chosen on held-out tables, by a walk that begins where the rule of :mod:`.penalty` ends.

One fit with the rule's λ_θ gives weights and chains. From there one step goes to a quarter of λ_θ and one to
twice λ_θ, and more of them follow as long as the score on the held-out tables gets better. A step costs a
fraction of a fit:

- **Less λ_θ:** training goes on from the weights and chains that are there for twenty iterations,
  averaged anew. A Newton step would be wrong here: a fit stops long before cells with few records have
  followed all of their noise, which is a penalty in itself.
- **More λ_θ:** a Newton step on the chains that are there (:mod:`.newton`). Training on instead forgets the
  lighter penalty too slowly: on Bank 20 iterations at a doubled λ_θ lost 0.0016 NLLH, the Newton step and a
  fit from the start both 0.006.

Two neighbours are judged on the same chains, so that these cancel, and told apart by the standard error of
their difference (:func:`.heldout.compare_heldout`). The judges are the chains of the field with the least
penalty so far. Those of a smoother field flatter it: on Adult its own chains put the first field 0.007 above
that of twice the penalty, the chains of half the penalty 0.004, and the held-out records 0.003. And a Newton
step fits the very chains it is taken on, which must not judge it.

**Which λ_θ.** A parabola in log λ_θ through the best point and its neighbours has its top at the best λ_θ.
From there the one-standard-error rule goes toward more penalty for as long as that loses less than one
standard error of the difference, which grows with the way gone: with a loss of q·u² after u doublings and an
error of s·u, up to u = s/q; but not so far that by the parabola it loses more than 0.0005 NLLH.

**λ_μ** is then multiplied by ten as long as that is better, training on from the best point, and once
more where that loses less than one standard error.

With k parts there are folds, each fitted on the tables of all parts but one, and the differences are
averaged over them. The folds share the chains of one fit. Each has its own round of the tables and cells in
every iteration, so there are as many folds as keep choosing below three fits (two, for five parts of Adult
or Bank), and not all parts have their turn. No fold begins at the weights of another, which has seen its
held-out records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agglearn.field.engines.local import memory_needed
from agglearn.field.heldout import Difference
from agglearn.runtime.memory import require
from agglearn.runtime.speech import option, words
from agglearn.train.checkpoint import Checkpoints
from agglearn.train.select.course import Course, Station, Watch, other_work
from agglearn.train.select.folds import Fold
from agglearn.train.settings import FitSettings


def nothing_to_choose_on() -> str:
    """Why penalties that were to be chosen are set by a rule, and what to do about it."""
    made = words(
        python='aggregate_split(split={"valid": 0.2}), given as valid',
        shell="agglearn aggregate --split valid=0.2, given with --valid",
    )
    return (
        "no validation tables to choose penalties on, so a rule sets them: ask the data holder for tables of "
        f"other records ({made}), or for two or more parts"
    )


_LESS_THETA, _MORE_THETA = 0.25, 2.0  # training goes down fast and up slowly: see the module
_MORE_MU = 10.0  # NLLH hardly depends on λ_μ: a decade is a step
_MOST_WORK = 3.0  # fits that all choosing may cost
_MOST_LOST = 0.0005  # NLLH that the one-standard-error rule may give away


@dataclass(frozen=True)
class Choice:
    """What the held-out tables chose.

    Attributes
    ----------
    lambda_theta, lambda_mu
        The penalties; where each table has its own, λ_θ is what one for all would be.
    strength
        λ_θ beside that of the rule: what every table's penalty is multiplied by.
    path
        Every point of the walk: its penalties; its ``gain``, by how much its NLLH on the held-out tables is
        above that of the first point; and ``gain_se``, the standard error of its difference to the point it
        was reached from.
    folds
        How many fits to other tables the walk was made in.
    work
        What choosing cost, in fits.
    """

    lambda_theta: float
    lambda_mu: float
    strength: float
    path: list[dict[str, float]]
    folds: int
    work: float

    def applied_to(self, settings: FitSettings) -> FitSettings:
        """Settings with the penalties they left to be chosen."""
        chosen = {name: getattr(self, name) for name in settings.to_choose}
        if "lambda_theta" in chosen and settings.by_table:
            training = replace(settings.training, strength=settings.training.strength * self.strength)
            chosen = {**chosen, "lambda_theta": None, "training": training}
        return replace(settings, **chosen)

    def to_json(self) -> dict[str, Any]:
        """The choice as plain JSON values."""
        return vars(self).copy()


def choose(
    folds: Sequence[Fold],
    settings: FitSettings,
    *,
    threads: int | None = None,
    on_iteration: Watch | None = None,
    checkpoints: Checkpoints | None = None,
) -> Choice:
    """Choose the penalties that the settings leave to held-out tables.

    Parameters
    ----------
    folds
        One, or several whose held-out tables are of different records.
    settings
        How to fit.
    threads, on_iteration
        As in :func:`.train.fit`.
    checkpoints
        Where the first fits are kept, and the choice once it is made. A run killed in between walks again
        from the first fits, to the same end.
    """
    tables = [problem.identity for fold in folds for problem in (fold.train, fold.valid)]
    made = None if checkpoints is None else checkpoints.read_choice(tables, settings)
    if made is not None:
        return Choice(**made)
    choice = _Walk(folds, settings, threads, on_iteration, checkpoints).choose()
    if checkpoints is not None:
        checkpoints.keep_choice(tables, settings, choice.to_json())
    return choice


@dataclass(frozen=True, eq=False)
class _Point:
    """A point of the walk: its penalties, how it scored, and a place in every fold."""

    lambda_theta: float
    lambda_mu: float
    gain: float
    gain_se: float
    places: list[Station]
    sure: float = 0.0  # the gain, less the standard errors of steps to less penalty


class _Walk:
    """The walk, in all folds at once."""

    def __init__(
        self,
        folds: Sequence[Fold],
        settings: FitSettings,
        threads: int | None,
        on_iteration: Watch | None,
        checkpoints: Checkpoints | None,
    ) -> None:
        self._settings = settings
        first, n_folds = _first_fits(folds, settings)
        self._courses = []
        for number, fold in enumerate(folds[:n_folds]):
            kept = None if checkpoints is None else checkpoints.of_fold(number + 1)
            self._courses.append(Course(fold, number + 1, first, threads, on_iteration, kept))
        rows = np.array([course.fold.valid.rows for course in self._courses])
        self._shares = rows / rows.sum()
        other = other_work(folds[0].train.layout)
        self._one_fit = float(np.mean([n_folds * c.moves + other * c.iterations for c in self._courses]))
        self._judges = [course.start for course in self._courses]
        self._path: list[dict[str, float]] = []

    def choose(self) -> Choice:
        """Walk along λ_θ, then along λ_μ."""
        best = self._start()
        theta, mu, strength = best.lambda_theta, best.lambda_mu, 1.0
        if "lambda_theta" in self._settings.to_choose:
            best, theta = self._along_theta(best)
            strength = theta / self._path[0]["lambda_theta"]
        if "lambda_mu" in self._settings.to_choose:
            mu = self._along_mu(best)
        return Choice(theta, mu, strength, self._path, len(self._courses), self._work() / self._one_fit)

    def _start(self) -> _Point:
        places = [course.start for course in self._courses]
        # The rule ends at nearly the same λ in each fold; the walk in common begins between them.
        theta = self._settings.fixed_theta
        if theta is None:
            theta = float(np.exp(np.mean([np.log(place.lambda_theta) for place in places])))
        return self._reached(_Point(theta, self._settings.fixed_mu, 0.0, 0.0, places))

    def _along_theta(self, start: _Point) -> tuple[_Point, float]:
        """The best point along λ_θ, and the λ_θ to take."""
        line = [start]  # neighbours, in the order of their λ_θ
        if self._affordable(training=True):
            line.insert(0, self._loosen(start))
            if self._affordable(training=False):
                line.append(self._tighten(start))
        while len(line) > 1:
            best = max(line, key=lambda point: point.sure)
            if best is line[0] and self._affordable(training=True):
                line.insert(0, self._loosen(best))
            elif best is line[-1] and self._affordable(training=False):
                line.append(self._tighten(best))
            else:
                break
        best = max(line, key=lambda point: point.sure)
        return best, _take(line, line.index(best))

    def _along_mu(self, best: _Point) -> float:
        """The λ_μ to take."""
        while self._affordable(training=True):
            tried = self._train_on(best, best.lambda_theta, _MORE_MU * best.lambda_mu)
            if tried.gain <= best.gain:
                return (tried if best.gain - tried.gain <= tried.gain_se else best).lambda_mu
            best = tried
        return best.lambda_mu

    def _loosen(self, point: _Point) -> _Point:
        """The neighbour with less λ_θ, whose chains are the judges from then on.

        Held-out tables that are noisy tell next to nothing, and less penalty follows noise: it has to gain
        by more than a standard error.
        """
        found = self._train_on(point, _LESS_THETA * point.lambda_theta, point.lambda_mu, judging=True)
        return replace(found, sure=found.sure - found.gain_se)

    def _tighten(self, point: _Point) -> _Point:
        """The neighbour with more λ_θ."""
        theta = _MORE_THETA * point.lambda_theta
        places = [c.tighten(at, theta) for c, at in zip(self._courses, point.places, strict=True)]
        return self._compare(point, _Point(theta, point.lambda_mu, 0.0, 0.0, places))

    def _train_on(self, point: _Point, theta: float, mu: float, judging: bool = False) -> _Point:
        places = [c.train_on(at, theta, mu) for c, at in zip(self._courses, point.places, strict=True)]
        if judging:
            self._judges = places
        return self._compare(point, _Point(theta, mu, 0.0, 0.0, places))

    def _compare(self, point: _Point, neighbour: _Point) -> _Point:
        """The neighbour with its gain, by the mean difference over all held-out records."""
        pairs = zip(self._courses, neighbour.places, point.places, self._judges, strict=True)
        mean = _mean([course.compare(*places) for course, *places in pairs], self._shares)
        gain, sure = point.gain + mean.nllh, point.sure + mean.nllh
        return self._reached(replace(neighbour, gain=gain, gain_se=mean.nllh_se, sure=sure))

    def _reached(self, point: _Point) -> _Point:
        names = ("lambda_theta", "lambda_mu", "gain", "gain_se")
        self._path.append({name: getattr(point, name) for name in names})
        return point

    def _work(self) -> float:
        return sum(course.work for course in self._courses)

    def _affordable(self, training: bool) -> bool:
        """Whether one more neighbour stays below what choosing may cost."""
        costs = [c.training_cost if training else c.tightening_cost for c in self._courses]
        return self._work() + sum(costs) <= _MOST_WORK * self._one_fit


def _mean(differences: Sequence[Difference], shares: np.ndarray[Any, np.dtype[np.float64]]) -> Difference:
    """The mean over folds; they hold different records, so their errors are independent."""
    nllh = shares @ [difference.nllh for difference in differences]
    error = np.sqrt(shares**2 @ [difference.nllh_se**2 for difference in differences])
    return Difference(float(nllh), float(error))


def _take(line: Sequence[_Point], best: int) -> float:
    """λ_θ by the parabola through the best point and its neighbours, and by one standard error more."""
    if len(line) < 3:
        return line[best].lambda_theta
    middle = min(max(best, 1), len(line) - 2)
    below, centre, above = line[middle - 1 : middle + 2]
    down, up = (float(np.log2(point.lambda_theta / centre.lambda_theta)) for point in (below, above))
    rise, fall = (centre.gain - below.gain) / -down, (above.gain - centre.gain) / up
    bend = (rise - fall) / (up - down)
    if bend <= 0:
        return line[best].lambda_theta
    top = min(max((fall + bend * up) / (2 * bend), down), up)
    # Points know the error of the step they were reached by, from the side of the start.
    error = max(centre.gain_se, above.gain_se) / up
    farther = min(error / bend, (_MOST_LOST / bend) ** 0.5)
    return float(centre.lambda_theta * 2 ** min(top + farther, up))


def _first_fits(folds: Sequence[Fold], settings: FitSettings) -> tuple[FitSettings, int]:
    """How the first fit of every fold goes, and how many folds there are to be.

    The folds share the chains of one fit. With fewer chains predictions go on moving by noise alone, as the
    root of their number.
    """
    chains, shared = settings.chains, 1
    layout = folds[0].train.layout
    if len(folds) > 1:
        total = settings.n_chains(sum(fold.valid.rows for fold in folds))
        # So first fits of fifty iterations, hardly ever less, and a step either way are below three fits.
        shared = min(len(folds), int(1 + total / (8 * other_work(layout))))
        chains = max(2, total // shared)
    if shared > 1:
        require(
            shared * (memory_needed(layout, chains or 2) + 30 * 8 * layout.n_cells),
            f"{shared} fields of {layout.n_cells:,} cells at once",
            f"give fewer parts, or one of them as validation tables ({option('valid')})",
        )
    first = replace(
        settings,
        lambda_theta=settings.fixed_theta,
        lambda_mu=settings.fixed_mu,
        chains=chains,
        tolerance=None if settings.tolerance is None else settings.tolerance * shared**0.5,
        training=replace(settings.training, rest=settings.training.rest * shared**0.5),
    )
    return first, shared
