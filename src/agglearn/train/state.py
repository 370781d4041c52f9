"""All that training knows after some iterations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from dataclasses import field as dataclass_field
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.field.field import Field
from agglearn.field.kernels.score import Codes
from agglearn.field.layout import Layout
from agglearn.field.levels import Levels
from agglearn.field.start import GivenChains, Start, tree_start
from agglearn.runtime.declared import check_fields
from agglearn.runtime.random import Numbers

Floats = npt.NDArray[np.float64]


@dataclass
class Iterates:
    """The weights of a field on their way, and what their next step needs.

    Attributes
    ----------
    layout, mu, theta, intercept
        The weights.
    mu_mean, theta_mean, intercept_mean
        Their running averages.
    theta_law, intercept_law
        The weights that X follows, on their way to θ.
    velocity, push
        Of θ and of the intercept.
    d_run, c_run
        The running means behind p̂.
    precision, prior
        Of each θ: its penalty is ½·precision·(θ − prior)². An empty prior is 0.
    apart
        Whether X follows μ alone.
    """

    layout: Layout
    mu: Floats
    theta: Floats
    intercept: float
    mu_mean: Floats
    theta_mean: Floats
    intercept_mean: float
    theta_law: Floats
    intercept_law: float
    velocity: Floats
    push: float
    d_run: Floats
    c_run: Floats
    precision: Floats
    prior: Floats
    apart: bool = False

    @classmethod
    def at(cls, field: Field, penalties: float | Floats, prior: Floats | None = None) -> Iterates:
        """Weights that begin at a field, with nothing to average over yet, and a λ_θ for each table."""
        mu, theta, b = field.mu, field.theta, field.intercept
        precision = np.repeat(2.0 * np.broadcast_to(penalties, field.layout.n_tables), field.layout.sizes)
        return cls(
            layout=field.layout,
            mu=mu.copy(),
            theta=theta.copy(),
            intercept=b,
            mu_mean=mu.copy(),
            theta_mean=np.zeros_like(theta),
            intercept_mean=b,
            theta_law=theta.copy(),
            intercept_law=b,
            velocity=np.zeros_like(theta),
            push=0.0,
            d_run=np.zeros_like(mu),
            c_run=np.zeros_like(mu),
            precision=precision,
            prior=np.zeros(0) if prior is None else prior,
            apart=field.apart,
        )

    def go_back(self) -> None:
        """Stand where the averages are, without momentum."""
        self.mu[:], self.theta[:], self.intercept = self.mu_mean, self.theta_mean, self.intercept_mean
        self.theta_law[:], self.intercept_law = self.theta_mean, self.intercept_mean
        self.velocity[:], self.push = 0.0, 0.0

    @property
    def now(self) -> Field:
        """The field of the last step; it moves on with the next."""
        return Field(self.layout, self.mu, self.theta, self.intercept, self.apart)

    @property
    def law(self) -> Field:
        """The field that X follows; it moves on with the next step."""
        return Field(self.layout, self.mu, self.theta_law, self.intercept_law, self.apart)

    @property
    def mean(self) -> Field:
        """The averaged field, which is the one to keep; it moves on with the next step."""
        return Field(self.layout, self.mu_mean, self.theta_mean, self.intercept_mean, self.apart)


@dataclass(frozen=True)
class Iteration:
    """What one iteration did: an entry of the history.

    Attributes
    ----------
    iteration
        Its number, from 1.
    misfit_d, misfit_c, chi2_d, grad_mu, grad_theta
        How far the tables were from being fitted before the step: see :class:`~.step.StepInfo`.
    step_mu, step_theta, lambda_theta, chains
        With what it went.
    seconds
        How long it took.
    moves, acceptance, group_acceptance
        Share of values that changed, and of proposals (of single values, of groups of features) that were
        accepted, where chains moved.
    records
        What records counted beside the chains, where there were any.
    log_partition
        log Z, where the engine is exact.
    moved
        By how much (root mean square) predicted log-odds had moved since the last look, where this was one.
    valid_nllh, valid_nllh_se
        The score on held-out tables, where it was taken.
    """

    iteration: int
    misfit_d: float
    misfit_c: float
    chi2_d: float
    grad_mu: float
    grad_theta: float
    step_mu: float
    step_theta: float
    lambda_theta: float
    chains: int
    seconds: float
    moves: float | None = None
    acceptance: float | None = None
    group_acceptance: float | None = None
    records: float | None = None
    log_partition: float | None = None
    moved: float | None = None
    valid_nllh: float | None = None
    valid_nllh_se: float | None = None

    def to_json(self) -> dict[str, Any]:
        """What there is to say, as plain JSON values."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Iteration:
        """The entry that :meth:`to_json` gave; what a later version may add is left aside."""
        return cls(**check_fields(cls, {f.name: document[f.name] for f in fields(cls) if f.name in document}))


@dataclass(frozen=True, eq=False)
class Warm:
    """Where an earlier fit ended, to begin from.

    Attributes
    ----------
    field
        Its weights, over the tables at hand.
    penalties, lambda_theta
        λ_θ of each table, and what one for all would be.
    chains
        Its chains, a row for each feature; None where it kept none.
    levels
        λ_θ of its coarser tables, by table and level.
    """

    field: Field
    penalties: Floats
    lambda_theta: float
    chains: Codes | None
    levels: Mapping[tuple[int, int], float] = dataclass_field(default_factory=dict)

    def all_penalties(self, levels: Levels) -> Floats:
        """λ_θ of each table and of each coarser one; those that are new have the usual one."""
        return levels.penalties(self.penalties, self.levels, self.lambda_theta)

    def start(
        self, layout: Layout, d: npt.NDArray[np.floating], rows: float, n_chains: int, numbers: Numbers
    ) -> Start:
        """The old weights and chains, as many as are wanted; chains of a tree where there were none."""
        if self.chains is None:
            begun = tree_start(layout, d, rows, n_chains, numbers)
            return replace(begun, mu=self.field.mu)
        taken = np.linspace(0, self.chains.shape[1], n_chains, endpoint=False).astype(np.int64)
        return Start(self.field.mu, GivenChains(self.chains[:, taken]), n_chains, ())


@dataclass
class FitState:
    """All that training knows after some iterations, chains apart.

    ``ahead`` are the iterations that an earlier fit is taken to have done before; ``overlap`` is by what
    steps on θ are divided, 0 for the number of tables; ``inertia`` is the share of the momentum that is left.
    Where training was begun anew, ``ahead`` takes back the iterations before.
    """

    weights: Iterates
    lambda_theta: float
    penalties: Floats  # λ_θ of each table
    iteration: int = 0
    ahead: int = 0
    step_scale: float = 1.0
    overlap: float = 0.0
    inertia: float = 1.0
    best_misfit: float = np.inf
    bad_iterations: int = 0
    theta_seen: Floats = dataclass_field(default_factory=lambda: np.zeros(0))
    intercept_seen: float = 0.0
    stopped_because: str | None = None
    history: list[Iteration] = dataclass_field(default_factory=list)
