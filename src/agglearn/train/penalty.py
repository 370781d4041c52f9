"""A penalty on θ from the tables alone, found while training.

The rule is the geometric mean of two that err on different data.

**Evidence.** With independent cells the evidence of a Gaussian prior of precision 2λ is greatest where
2λ‖θ‖² = γ, the number of weights that the data determine: γ = Σ_k γ_k, γ_k = h_k/(h_k + 2λ),
h_k = d_k p_k(1 − p_k). The tables of a field overlap, each record being counted once in every one of T
tables, so where a cell is well determined the same information is counted many times. What is kept here is

    2λ‖θ‖² = Σ_k γ_k / (1 + (κ − 1) γ_k),   κ = max(1, T/30):

a cell the data say little of counts as if it were alone, one they determine counts 1/κ. It finds out that a
label is nearly noise: of Adult with half of the labels mixed up, 64 is best and it says 74. But it takes all
weights for draws of one law. Where a few are large and most are nothing, and records are few, it asks for too
much: of a tenth of Bank, 16 is best, it says 88 and loses 0.077 NLLH.

**Usual.** λ = T^0.6 is near the best for a label that depends strongly on the features, for any number of
records: from 1 or 2 for three features to 16 or 32 for the 190 tables of Bank. Log-odds are sums of T
weights, so that more tables need smaller ones. It cannot know that a label is nearly noise.

**Noise of the chains.** θ follows the chance of the chains as it follows that of the records. The weights
that are kept average over about fifty iterations, so n′ chains tell a cell as well as 50 n′ records would,
and where n is not small beside that, all noise is 1 + n/(50 n′) times the records'. A prior of precision 2λ
beside so much noise is worth 2λ/(1 + n/(50 n′)), so λ is multiplied by that. Without it the weights that grow
with the noise ask for less penalty still: with 5,000 chains for a million records of a simulated ads log the
evidence alone said 0.3 and NLLH was 0.108, where 64 gives 0.209.

All this was measured on validation records; `docs/tables-only.md` has what the rule loses on test records.
"""

from __future__ import annotations

import math

_TABLES_TOLD_APART = 30  # found on validation records of Adult and Bank, as the module tells
_USUAL_POWER = 0.6  # likewise
_ITERATIONS_AVERAGED = 50  # 5/9 of the iterations, weighted by (t/T)² as they are; a fit takes 50 to 100
_LEAST, _MOST = 2.0**-6, 2.0**16  # beyond either a change of λ changes no prediction that matters
_LARGEST_FACTOR = 2.0  # by which λ changes at once: θ needs time to follow


def first_lambda(cells_seen: int, positives: float) -> float:
    """Where to begin: θ grows faster than it shrinks, so the more cells there are to overfit, the higher."""
    return float(16.0 * max(1.0, cells_seen / positives) ** (1 / 3))


def overlap(n_tables: int) -> float:
    """κ: how many times the tables count the same information."""
    return max(1.0, n_tables / _TABLES_TOLD_APART)


def chain_noise(rows: float, n_chains: int, averaged: int = _ITERATIONS_AVERAGED) -> float:
    """By how much all noise on weights averaged over so many iterations exceeds that of the records alone."""
    return 1.0 + rows / (averaged * n_chains) if n_chains else 1.0


def next_lambda(
    lambda_theta: float, gamma: float, theta_squared: float, n_tables: int, noise: float = 1.0
) -> float:
    """One update of λ toward the fixed point of the rule; ``noise`` is that of :func:`chain_noise`."""
    if gamma <= 0 or theta_squared <= 0:
        return lambda_theta
    evidence, usual = gamma / (2 * theta_squared), n_tables**_USUAL_POWER
    factor = noise * math.sqrt(evidence * usual) / lambda_theta
    factor = min(max(factor, 1 / _LARGEST_FACTOR), _LARGEST_FACTOR)
    return min(max(lambda_theta * factor, _LEAST), _MOST)
