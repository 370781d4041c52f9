"""How a field is fitted: what a user turns, and what serves experiments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import inf, isfinite
from typing import Any, Literal

from agglearn.errors import InputError
from agglearn.runtime.declared import check_fields
from agglearn.runtime.options import check_bounds, check_seed
from agglearn.runtime.speech import option

Penalty = float | Literal["auto"] | None

ENGINES = ("local", "exact", "spark")
_GRADIENTS = ("rescaled", "plain")
_STARTS = ("tree", "independent")
_PRIORS = ("tables", "single")
_LAWS = ("auto", "one", "apart")
_LAMBDA_MU = 0.1  # better by 0.0006 than 1 on five splits of Adult (docs/method.md)
_ROWS_A_CHAIN = 3.0  # averaging over iterations makes a chain worth many records (docs/paper.md, chains)
_FIRST_VERSION = {
    "prior": "single",
    "law": "one",
    "momentum": 0.0,
    "lag": 1.0,
    "levels": False,
    "groups": False,
}
_FEWEST_CHAINS, _MOST_CHAINS = 10_000, 1_000_000


@dataclass(frozen=True)
class TrainingSettings:
    """How training goes about it. The defaults need no tuning on real data; others serve experiments.

    Attributes
    ----------
    growth
        The chains start as one ``growth``-th of their number and double every few iterations.
    first_step_mu, step_mu
        Length of a step on μ, in units of 1/tables: it starts at the first and shrinks like 1/iteration down
        to the second.
    first_step_theta, step_theta
        The same on θ, in units of 1/overlap: how many weights move a record's log-odds at once, each counted
        by the share of its curvature that is not penalty (:func:`.evidence.overlap_of_steps`).
    momentum
        How much of θ's last move is made again.
    lag
        The share of the way to θ that the weights which X follows go at each iteration; 1 is all of it.
    law
        ``one`` law of X and label, X ``apart`` from the label, or ``auto``: what the tables show
        (:mod:`.law`).
    rate_memory
        How much the past counts, iteration by iteration, in the rates p̂; 0 takes those of the last sweep
        alone.
    gradient
        ``rescaled`` compares rates of positives, ``plain`` is the likelihood's own gradient.
    preconditioned
        Whether each weight's step is divided by its own curvature.
    marginal_label
        Whether ĉ sums the label out of each chain, rather than use the drawn label.
    start
        ``tree`` or ``independent``.
    averaging
        Whether the weights kept are an average over iterations, rather than the last ones.
    prior
        Where λ_θ is to be found: ``tables`` finds one for each table, with main effects beside them
        (:mod:`.evidence`), ``single`` one for all (:mod:`.penalty`). A λ_θ that is given is the same for all.
    levels
        Whether coarser tables stand beside those of binned features (:mod:`agglearn.field.levels`), where a
        penalty is found for each table.
    rest
        Where no tolerance is given, predictions are at rest when they move by less than this share of what
        they are uncertain by. With a fifteenth NLLH on validation records of the zoo is within chance of what
        longer training gives.
    strength
        What the penalties that are found by table are multiplied by, such as held-out tables would have it.
    groups
        Whether features that determine one another are also redrawn together (:mod:`agglearn.field.groups`).
    exact_up_to, proposals
        Features with more modalities than this are drawn by so many Metropolis proposals.
    """

    growth: int = 4
    first_step_mu: float = 16.0
    step_mu: float = 6.0
    first_step_theta: float = 2.0
    step_theta: float = 0.5
    momentum: float = 0.9
    lag: float = 0.1
    law: str = "auto"
    rate_memory: float = 0.8
    gradient: str = "rescaled"
    preconditioned: bool = True
    marginal_label: bool = True
    start: str = "tree"
    averaging: bool = True
    prior: str = "tables"
    levels: bool = True
    groups: bool = True
    rest: float = 1 / 15
    strength: float = 1.0
    exact_up_to: int = 100
    proposals: int = 2

    def __post_init__(self) -> None:
        _one_of(self, "gradient", _GRADIENTS)
        _one_of(self, "start", _STARTS)
        _one_of(self, "prior", _PRIORS)
        _one_of(self, "law", _LAWS)
        for name in ("growth", "exact_up_to", "proposals"):
            _at_least(self, name, 1)
        for name in ("first_step_mu", "step_mu", "first_step_theta", "step_theta", "rest", "strength"):
            if not 0 < getattr(self, name) < inf:
                raise InputError(f"{option(name)} {getattr(self, name)} must be above 0")
        for name in ("rate_memory", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{option(name)} {getattr(self, name)} must be at least 0 and below 1")
        if not 0 < self.lag <= 1:
            raise InputError(f"{option('lag')} {self.lag} must be above 0 and at most 1")


@dataclass(frozen=True)
class FitSettings:
    """What a user turns.

    Attributes
    ----------
    lambda_theta, lambda_mu
        Penalties on θ, and on how far μ goes from its start. ``"auto"`` chooses on held-out tables
        (:mod:`.select.choose`), where there are some. None, or ``"auto"`` without such tables, finds a λ_θ
        for each table while training (:mod:`.evidence`), and takes 0.1 for λ_μ; where λ_θ is chosen, λ_μ is
        chosen with it unless it is a number.
    iterations
        The most iterations.
    chains
        Number of chains of the local engine; None chooses by the number of records.
    engine
        ``local``, ``exact``, or ``spark``: the chains of the local engine, spread over a cluster.
    tolerance
        Training stops when the predicted log-odds move by less than this (root mean square over the
        chains) between two looks, ten iterations apart. None takes a share of what predictions are uncertain
        by (:func:`.evidence.uncertainty`; 0.4 to 1.1 on the zoo).
    seed
        Seed of the chains.
    training
        How training goes about it.
    """

    lambda_theta: Penalty = None
    lambda_mu: Penalty = None
    iterations: int = 500
    chains: int | None = None
    engine: str = "local"
    tolerance: float | None = None
    seed: int = 0
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        _one_of(self, "engine", ENGINES)
        for name in ("lambda_theta", "lambda_mu"):
            value = getattr(self, name)
            if isinstance(value, str) and value != "auto":
                raise InputError(f"{option(name)} {value!r} is neither a number nor auto")
            if not isinstance(value, str | None):
                _at_least(self, name, 0)
        _at_least(self, "iterations", 1)
        if self.tolerance is not None:
            _at_least(self, "tolerance", 0)
        check_seed(self.seed)
        if self.chains is not None:
            _at_least(self, "chains", 2)
        check_bounds(
            lambda_theta=self.lambda_theta,
            lambda_mu=self.lambda_mu,
            iterations=self.iterations,
            tolerance=self.tolerance,
            chains=self.chains,
        )

    @property
    def to_choose(self) -> tuple[str, ...]:
        """The penalties to be chosen on held-out tables."""
        theta = self.lambda_theta == "auto"
        mu = self.lambda_mu == "auto" or (theta and self.lambda_mu is None)
        return ("lambda_theta",) * theta + ("lambda_mu",) * mu

    @property
    def fixed_theta(self) -> float | None:
        """λ_θ where it is given, None where the rule is to find it."""
        return self.lambda_theta if isinstance(self.lambda_theta, float | int) else None

    @property
    def by_table(self) -> bool:
        """Whether a λ_θ is to be found for each table."""
        return self.fixed_theta is None and self.training.prior == "tables"

    @property
    def fixed_mu(self) -> float:
        """λ_μ: as given, or the usual one."""
        return self.lambda_mu if isinstance(self.lambda_mu, float | int) else _LAMBDA_MU

    def n_chains(self, rows: float) -> int:
        """The number of chains for so many records."""
        if self.chains is not None:
            return self.chains
        return int(min(max(rows / _ROWS_A_CHAIN, _FEWEST_CHAINS), _MOST_CHAINS))

    def to_json(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FitSettings:
        """The settings that :meth:`to_json` gave, or those of a file of version 1.

        There all stood side by side, one penalty was found for all tables, and steps were simpler.
        """
        own = {f.name for f in fields(cls)} - {"training"}
        nested = {f.name for f in fields(TrainingSettings)}
        flat = {**_FIRST_VERSION, **document, **document.get("training", {})}
        flat.setdefault("first_step_mu", flat.get("step_mu", TrainingSettings.step_mu))
        flat.pop("training", None)
        odd = sorted(flat.keys() - own - nested)
        if odd:
            raise ValueError(f"there is no setting {odd[0]!r}")
        training = check_fields(TrainingSettings, {k: v for k, v in flat.items() if k in nested})
        rest = check_fields(cls, {k: v for k, v in flat.items() if k in own})
        return cls(**rest, training=TrainingSettings(**training))


def _one_of(settings: object, name: str, allowed: tuple[str, ...]) -> None:
    value = getattr(settings, name)
    if value not in allowed:
        raise InputError(f"{option(name)} {value!r} is not one of {', '.join(allowed)}")


def _at_least(settings: object, name: str, least: float) -> None:
    value = getattr(settings, name)
    finite = isinstance(value, int) or isfinite(value)  # a whole number may be beyond all floats
    if not (finite and value >= least):
        raise InputError(f"{option(name)} {value} must be at least {least:g}")
