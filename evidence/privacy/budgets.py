"""Data sets, splits and budgets that private models are compared on."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from agglearn.privacy.accounting import Ask, uncertified
from agglearn.privacy.binning import private_bins
from agglearn.privacy.budget import Budget
from agglearn.tables.promise import Spending
from evidence.runner import Value
from evidence.zoo import sets

NAMES = ("adult", "bank", "credit", "adslow")
EPSILONS = (0.3, 1.0, 3.0, 10.0)
DELTA = 1e-6
SEEDS = 3


@dataclass(frozen=True)
class Sizes:
    """What is run: data sets, budgets, seeds, and how much of the records."""

    names: tuple[str, ...] = NAMES
    epsilons: tuple[float, ...] = EPSILONS
    seeds: int = SEEDS
    part: sets.Sizes = sets.FULL


FULL = Sizes()
QUICK = Sizes(("adult",), (1.0,), 1, sets.QUICK)


def runs(config: Sizes) -> list[tuple[str, str, float, int]]:
    """A name for each data set, budget and seed, with all three; the seeds of all first, then the next."""
    return [
        (f"{name}-epsilon{epsilon:g}-seed{seed}", name, epsilon, seed)
        for seed in range(config.seeds)
        for name in config.names
        for epsilon in config.epsilons
    ]


def settings(name: str, epsilon: float, seed: int, config: Sizes) -> Value:
    """What decides the data and the noise."""
    return {"data": name, "epsilon": epsilon, "delta": DELTA, "seed": seed, "part": asdict(config.part)}


def noise_on(moved: int, epsilon: float) -> Spending:
    """Gaussian noise on numbers of which a record moves so many, by one each."""
    [spent] = uncertified(Budget(epsilon=epsilon, delta=DELTA), [Ask("numbers", 0, moved)])
    return spent


def bins(parts: sets.Split, epsilon: float) -> int:
    """The bins that a private release of all pairs has by default."""
    features = parts.whole.num_columns - 1
    spent = noise_on(features * (features - 1) // 2, epsilon)
    return private_bins(parts.whole.num_rows, features, spent)
