"""How finely numeric columns are binned where a budget is to be kept.

More bins follow a column more closely, and leave fewer records to tell from the noise. With B bins, n
records and D features, what a bin says of the label has the error

    a/B² + b·B³·D/(μ²n²):

the effect changes within a bin by 1/B of its range; and a bin of n/B records is counted with noise of
variance B·D/(2μ²) once all tables that hold its column have been averaged, for noise whose standard deviation
is 1/μ of the sensitivity, however many tables there are. That is least at B in proportion to (μ²n²/D)^⅕. The
factor is the one number taken from data: on validation records of Adult and Bank 5 to 7 bins were best at
ε = 0.375, 7 to 10 at 1.25, and 20 without noise.
"""

from __future__ import annotations

import math

from agglearn.privacy.accounting import Ask, uncertified
from agglearn.privacy.budget import Budget
from agglearn.records.learn import usual_bins
from agglearn.schema.features import Binned
from agglearn.schema.schema import Schema
from agglearn.tables.promise import Spending

_FACTOR = 0.45
_FEWEST = 5


def private_bins(records: float, features: int, spending: Spending) -> int:
    """How many bins a numeric column has where nobody says.

    Parameters
    ----------
    records
        How many there are: a number that may be known, such as a noisy one.
    features
        How many features the tables are of.
    spending
        The noise that is to be put on the tables.
    """
    sigma = spending.scale * (math.sqrt(2) if spending.mechanism == "laplace" else 1.0)
    mu = math.sqrt(spending.moved) / sigma
    finest: float = _FACTOR * (mu * max(records, 1.0)) ** 0.4 / max(features, 1) ** 0.2
    return max(min(round(finest), usual_bins(int(max(records, 0)))), _FEWEST)


def fewer_bins(schema: Schema, records: float, budget: Budget, ask: Ask) -> int | None:
    """How many bins the budget is good for, where numeric columns have more; None where none has."""
    [noise] = uncertified(budget, [ask])
    bins = private_bins(records, len(schema.features), noise)
    finer = any(isinstance(f, Binned) and len(f.cuts) + 1 > bins for f in schema.features)
    return bins if finer else None
