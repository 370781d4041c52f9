"""A simulated advertising log whose true click probability is known.

Three hidden variables, a campaign k, a site s and a user u, follow Zipf-like laws; s leans on k and u
on s. Each feature j copies a fixed function of one of them with probability f_j, its fidelity, and is
otherwise drawn from a Zipf law of its own:

    x_j = map_j[hidden_j]  with probability f_j,   x_j ~ Zipf_j  otherwise.

Features of one hidden variable are therefore nearly functions of one another, as site and placement or
campaign and advertiser are in a real log. The label depends on the features alone:

    P(Y=1|x) = σ(b + Σ_j a_j[x_j] + Σ_(i,j) u_ij[x_i] · v_ij[x_j]),

with pair effects for some (i, j). The score is scaled to a fixed spread, and b is such that the mean
probability is the click rate asked for, both measured on a chunk that no sample contains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.errors import InputError

Codes = npt.NDArray[np.uint16]
Labels = npt.NDArray[np.uint8]
_Floats = npt.NDArray[np.float64]

CHUNK_ROWS = 65_536
"""Rows that are drawn together, each chunk from its own counter of the generator."""

_PILOT_CHUNK = 2**63  # beyond the end of any sample
_ZIPF_SHIFT = 2.0  # p_k ∝ 1 / (k + 1 + shift): no single value takes more than a few per cent
_SCORE_SPREAD = 1.65  # standard deviation of the score; gives a true NLLH of about 0.25
_PAIR_SHARE = 0.35  # standard deviation of one pair effect, where that of a main effect is 1
_HIGH_BITS = np.uint64(32)
_LOW_MASK = np.uint64(0xFFFFFFFF)


class _Role(NamedTuple):
    """What a feature of the log stands for.

    ``size`` is its number of modalities when the largest has 1,000; those of 40 and fewer keep it.
    """

    meaning: str
    hidden: int
    size: int
    fidelity: float


_CAMPAIGN, _SITE, _USER = range(3)
_ROLES = (
    _Role("campaign", _CAMPAIGN, 1000, 1.0),
    _Role("site", _SITE, 1000, 1.0),
    _Role("advertiser", _CAMPAIGN, 500, 0.99),
    _Role("placement", _SITE, 900, 0.95),
    _Role("device", _USER, 6, 0.9),
    _Role("creative", _CAMPAIGN, 700, 0.85),
    _Role("publisher", _SITE, 500, 0.98),
    _Role("city", _USER, 100, 0.95),
    _Role("category", _CAMPAIGN, 20, 0.97),
    _Role("vertical", _SITE, 30, 0.95),
    _Role("system", _USER, 10, 0.85),
    _Role("hour", _USER, 24, 0.1),
    _Role("format", _SITE, 12, 0.7),
    _Role("region", _USER, 25, 0.95),
    _Role("browser", _USER, 15, 0.8),
    _Role("language", _USER, 40, 0.9),
    _Role("strategy", _CAMPAIGN, 8, 0.9),
    _Role("recency", _USER, 10, 0.0),
    _Role("frequency", _USER, 12, 0.3),
)


@dataclass(frozen=True)
class AdsLog:
    """A simulated ads log: correlated categorical features, and a click whose probability is known.

    Parameters
    ----------
    n_features
        Number of features. They stand, in order, for campaign, site, advertiser, placement, device,
        creative, publisher, city, category, vertical, system, hour, format, region, browser,
        language, strategy, recency, frequency, and over again.
    max_modalities
        Modalities of the largest features. With the default the tables of all pairs have 10 million
        cells.
    click_rate
        Mean of P(Y=1|x).
    seed
        Fixes the law: functions, marginals and effects. The draws have a seed of their own.

    Notes
    -----
    The draws come from a counter-based generator, a chunk of 65,536 rows at a time, so they depend on
    the two seeds and on neither the batch size nor the number of rows asked for. Another version of
    NumPy may give another law for the same seed.

    Examples
    --------
    >>> log = AdsLog(seed=1)
    >>> codes, y = log.sample(1000, seed=2)
    >>> codes.shape
    (1000, 19)
    """

    n_features: int = 19
    max_modalities: int = 1000
    click_rate: float = 0.06
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_features < 2:
            raise InputError(f"n_features is {self.n_features}: an ads log needs 2 or more")
        if not 2 <= self.max_modalities <= 65_535:
            raise InputError(
                f"max_modalities is {self.max_modalities}: choose from 2 to 65,535, codes are 16 bits"
            )
        if not 0.0 < self.click_rate < 1.0:
            raise InputError(f"click_rate is {self.click_rate}: choose between 0 and 1")
        if self.seed < 0:
            raise InputError(f"seed is {self.seed}: choose 0 or more")

    @property
    def names(self) -> tuple[str, ...]:
        """Column names of the features: ``f00``, ``f01`` and so on."""
        return tuple(f"f{j:02d}" for j in range(self.n_features))

    @cached_property
    def cards(self) -> tuple[int, ...]:
        """Number of modalities of each feature."""
        return tuple(
            min(
                self.max_modalities,
                role.size if role.size <= 40 else max(2, role.size * self.max_modalities // 1000),
            )
            for role in self._roles
        )

    @property
    def pair_cells(self) -> int:
        """Cells of the tables of all pairs of features."""
        total = sum(self.cards)
        return (total * total - sum(card * card for card in self.cards)) // 2

    def sample(self, rows: int, seed: int) -> tuple[Codes, Labels]:
        """Draw records.

        The same seed gives the same records: asking for more rows only appends to them, and `batches`
        cuts the very same sequence.

        Parameters
        ----------
        rows
            How many.
        seed
            Seed of the draws.

        Returns
        -------
        codes
            Array of shape (rows, n_features), the code of each feature.
        y
            Array of shape (rows,), the label, 0 or 1.
        """
        if rows < 0:
            raise InputError(f"rows is {rows}: choose 0 or more")
        codes = np.empty((rows, self.n_features), np.uint16)
        y = np.empty(rows, np.uint8)
        for start in range(0, rows, CHUNK_ROWS):
            part = slice(start, min(start + CHUNK_ROWS, rows))
            length = part.stop - part.start
            columns, labels = self._chunk(start // CHUNK_ROWS, seed)
            codes[part] = columns[:, :length].T
            y[part] = labels[:length]
        return codes, y

    def batches(self, rows: int, batch_rows: int, seed: int) -> Iterator[tuple[Codes, Labels]]:
        """Draw the records of ``sample(rows, seed)``, at most ``batch_rows`` at a time."""
        if batch_rows < 1:
            raise InputError(f"batch_rows is {batch_rows}: choose 1 or more")
        chunk = -1
        for start in range(0, rows, batch_rows):
            stop = min(start + batch_rows, rows)
            parts = []
            while start < stop:
                if start // CHUNK_ROWS != chunk:
                    chunk = start // CHUNK_ROWS
                    columns, labels = self._chunk(chunk, seed)
                first = start % CHUNK_ROWS
                last = min(CHUNK_ROWS, first + stop - start)
                parts.append((columns[:, first:last].T, labels[first:last]))
                start += last - first
            yield (
                np.concatenate([part[0] for part in parts]),
                np.concatenate([part[1] for part in parts]),
            )

    def probability(self, codes: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
        """Return the true P(Y=1|x) of each row of ``codes``.

        Parameters
        ----------
        codes
            Array of shape (rows, n_features), as `sample` gives it.
        """
        if codes.ndim != 2 or codes.shape[1] != self.n_features:
            raise InputError(f"codes has shape {codes.shape}: expected (rows, {self.n_features})")
        for j, card in enumerate(self.cards):
            column = codes[:, j]
            if column.size and not 0 <= column.min() <= column.max() < card:
                raise InputError(f"codes of {self.names[j]} are not all in 0…{card - 1}")
        return self._probability(np.ascontiguousarray(codes.T))

    def to_table(self, codes: Codes, y: Labels, strings: bool = False) -> pa.Table:
        """Return records as an Arrow table with the columns `names` and ``click``.

        Parameters
        ----------
        codes, y
            As `sample` gives them.
        strings
            Write code 17 of ``f03`` as the string ``f03=17``, and not as the integer 17.
        """
        columns = []
        for name, card, column in zip(self.names, self.cards, codes.T, strict=True):
            array = pa.array(np.ascontiguousarray(column))
            if strings:
                values = pa.array([f"{name}={code}" for code in range(card)])
                array = pa.DictionaryArray.from_arrays(array, values).dictionary_decode()
            columns.append(array)
        return pa.table([*columns, pa.array(y)], names=[*self.names, "click"])

    # -- the law of the features -----------------------------------------------------------------

    @property
    def _roles(self) -> tuple[_Role, ...]:
        return tuple(_ROLES[j % len(_ROLES)] for j in range(self.n_features))

    @cached_property
    def _hidden_law(self) -> npt.NDArray[np.uint16]:
        """Quantile table of the hidden variables, which all have ``max_modalities`` values."""
        return _quantiles(self.max_modalities)

    @cached_property
    def _maps(self) -> tuple[npt.NDArray[np.uint16], ...]:
        """For each feature the code that each hidden value stands for; every code is reached."""
        rng = self._rng("maps")
        maps = []
        for card in self.cards:
            zipf = _quantiles(card)
            codes = zipf[rng.integers(0, zipf.size, self.max_modalities)]
            codes[rng.permutation(self.max_modalities)[:card]] = np.arange(card)
            if card == self.max_modalities:
                codes = np.arange(card, dtype=np.uint16)  # the hidden variable itself
            maps.append(codes)
        return tuple(maps)

    @cached_property
    def _noises(self) -> tuple[npt.NDArray[np.uint16], ...]:
        """For each feature the quantile table of the law it has apart from its hidden variable."""
        rng = self._rng("noise")
        return tuple(rng.permutation(card).astype(np.uint16)[_quantiles(card)] for card in self.cards)

    @cached_property
    def _leanings(self) -> npt.NDArray[np.int64]:
        """How far a value of the hidden variable before shifts the next one, a row for each link."""
        return self._rng("leanings").integers(0, self.max_modalities, (2, 16))

    def _chunk(self, chunk: int, seed: int) -> tuple[Codes, Labels]:
        """Codes (a row per feature) and labels of one chunk, a function of its number and the seed."""
        columns, uniforms = self._draw_features(chunk, seed)
        return columns, (uniforms < self._probability(columns)).astype(np.uint8)

    def _draw_features(self, chunk: int, seed: int) -> tuple[Codes, _Floats]:
        if seed < 0:
            raise InputError(f"seed is {seed}: choose 0 or more")
        key = np.random.SeedSequence([self.seed, seed]).generate_state(2, np.uint64)
        bits = np.random.Philox(counter=[0, 0, 0, chunk], key=key)
        lanes = bits.random_raw((3 + 1 + self.n_features) * CHUNK_ROWS).reshape(-1, CHUNK_ROWS)

        # Each 64-bit number serves twice: its low half draws a value, its high half decides.
        hidden = [self._hidden_law[(lane & _LOW_MASK) % self._hidden_law.size] for lane in lanes[:3]]
        for link, chance in ((_SITE, 0.4), (_USER, 0.3)):
            shift = self._leanings[link - 1][hidden[link - 1] % 16]
            leaning = (hidden[link] + shift) % self.max_modalities
            leans = _unit(lanes[link]) < chance
            hidden[link] = np.where(leans, leaning, hidden[link]).astype(np.uint16)

        columns = np.empty((self.n_features, CHUNK_ROWS), np.uint16)
        for j, (role, lane) in enumerate(zip(self._roles, lanes[4:], strict=True)):
            noise = self._noises[j]
            copied = self._maps[j][hidden[role.hidden]]
            drawn = noise[(lane & _LOW_MASK) % noise.size]
            columns[j] = np.where(_unit(lane) < role.fidelity, copied, drawn)
        return columns, (lanes[3] >> np.uint64(11)) * 2.0**-53

    # -- the law of the label --------------------------------------------------------------------

    @cached_property
    def _effects(self) -> tuple[float, list[_Floats], list[tuple[int, int, _Floats, _Floats]]]:
        """Intercept, main effects, and (i, j, u, v) for each pair that has an effect."""
        rng = self._rng("effects")
        main = [rng.standard_normal(card) * rng.uniform(0.5, 1.0) for card in self.cards]
        every = [(i, j) for j in range(self.n_features) for i in range(j)]
        chosen = rng.permutation(len(every))[: 2 * self.n_features]
        pairs = [
            (i, j, rng.standard_normal(self.cards[i]), rng.standard_normal(self.cards[j]))
            for i, j in (every[k] for k in sorted(chosen))
        ]
        pairs = [(i, j, _PAIR_SHARE * u, v) for i, j, u, v in pairs]

        columns, _ = self._draw_features(_PILOT_CHUNK, 0)
        score = _score(columns, main, pairs)
        scale = _SCORE_SPREAD / score.std()
        main = [scale * effect for effect in main]
        pairs = [(i, j, scale * u, v) for i, j, u, v in pairs]
        return _intercept(scale * score, self.click_rate), main, pairs

    def _probability(self, columns: npt.NDArray[np.integer]) -> _Floats:
        intercept, main, pairs = self._effects
        score = intercept + _score(columns, main, pairs)
        return _sigmoid(score)

    def _rng(self, purpose: str) -> np.random.Generator:
        """A generator for one part of the law, so that the parts do not depend on one another."""
        shape = (self.n_features, self.max_modalities)
        return np.random.default_rng([self.seed, *shape, *purpose.encode()])


def _quantiles(card: int) -> npt.NDArray[np.uint16]:
    """Zipf-like law on 0…card-1 as a table: an entry taken at random has it, to 1 part in 64·card."""
    weights = 1.0 / (np.arange(card) + 1.0 + _ZIPF_SHIFT)
    edges = np.cumsum(weights / weights.sum())
    edges[-1] = 1.0
    size = 64 * card
    return np.searchsorted(edges, (np.arange(size) + 0.5) / size).astype(np.uint16)


def _unit(lane: npt.NDArray[np.uint64]) -> _Floats:
    """The high halves as numbers in [0, 1)."""
    return (lane >> _HIGH_BITS).astype(np.float64) * 2.0**-32


def _score(
    columns: npt.NDArray[np.integer],
    main: list[_Floats],
    pairs: list[tuple[int, int, _Floats, _Floats]],
) -> _Floats:
    score = np.zeros(columns.shape[1])
    for column, effect in zip(columns, main, strict=True):
        score += effect[column]
    for i, j, u, v in pairs:
        score += u[columns[i]] * v[columns[j]]
    return score


def _sigmoid(score: _Floats) -> _Floats:
    return np.exp(-np.logaddexp(0.0, -score))


def _intercept(score: _Floats, rate: float) -> float:
    """The b at which the mean of σ(b + score) is ``rate``, by bisection."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        if _sigmoid(middle + score).mean() < rate:
            low = middle
        else:
            high = middle
    return (low + high) / 2
