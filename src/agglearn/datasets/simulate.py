"""Small data made on the spot: the paper's examples, and files in the formats of Criteo.

The files let code that reads the published formats be tested, and experiments be run, without the
published data. Their content comes from `AdsLog`; only the format is Criteo's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agglearn.datasets.adslog import AdsLog, Codes
from agglearn.datasets.criteo import (
    ADKDD_FEATURES,
    ADKDD_LABELS,
    ADKDD_PAIRS_FILE,
    ADKDD_SINGLES_FILE,
    ADKDD_TEST_FILES,
    ADKDD_TRAIN_FILE,
    ATTRIBUTION_COLUMNS,
    CRITEO_ATTRIBUTION_FEATURES,
)
from agglearn.datasets.delimited import write_delimited
from agglearn.errors import InputError

ADKDD_MIN_COUNT = 10
"""A cell of a pair is published in AdKDD'21 if more than this many records fall into it."""

_BATCH_ROWS = 131_072
_ATTRIBUTION_CLICK_RATE = 0.36
_MONTH_SECONDS = 30 * 24 * 3600
_IDENTIFIERS = 32_500_000


def toy() -> pa.Table:
    """Return the five records of the paper's toy example (its Table 1).

    Returns
    -------
    pyarrow.Table
        ``feature_1``, ``feature_2``, ``feature_3`` as strings and ``label``, 0 or 1.
    """
    return pa.table(
        {
            "feature_1": ["1", "2", "1", "2", "1"],
            "feature_2": ["B", "A", "B", "B", "A"],
            "feature_3": ["a", "b", "b", "a", "b"],
            "label": [1, 1, 0, 1, 0],
        }
    )


def xor(rows: int, seed: int) -> pa.Table:
    """Draw the paper's example of what tables of pairs cannot show.

    X₁ and X₂ are fair coins, X₃ = X₁ xor X₂, and P(Y=1|x) = 0.25 + 0.5·x₃. Any two of the features are
    independent, so that tables of pairs do not show that they hang together.

    Parameters
    ----------
    rows
        How many records.
    seed
        Seed of the draws.

    Returns
    -------
    pyarrow.Table
        ``x1``, ``x2``, ``x3`` and ``y``, all 0 or 1.
    """
    rng = np.random.default_rng(seed)
    x1, x2 = rng.integers(0, 2, (2, rows))
    x3 = x1 ^ x2
    y = (rng.random(rows) < 0.25 + 0.5 * x3).astype(np.int64)
    return pa.table({"x1": x1, "x2": x2, "x3": x3, "y": y})


# -- Criteo Attribution --------------------------------------------------------------------------


def write_criteo_attribution_like(path: Path, rows: int, seed: int, *, max_modalities: int = 700) -> AdsLog:
    """Write a file in the format of ``criteo_attribution_dataset.tsv.gz``.

    Parameters
    ----------
    path
        Where to; it appears whole or not at all. The folder is made if it is not there.
    rows
        How many records.
    seed
        Seed of the law and of the draws: the same seed gives the same file.
    max_modalities
        Modalities of the largest features; the published data have about 700 campaigns.

    Returns
    -------
    AdsLog
        What the records were drawn from, by ``sample(rows, seed)``: its features stand for
        ``campaign``, ``cat1`` … ``cat9`` in this order.

    Notes
    -----
    The click depends on ``campaign`` and the nine categories. ``time_since_last_click`` is drawn apart
    from all else; conversions are rare and follow clicks only.
    """
    _check_rows(rows)
    names = [name for name in CRITEO_ATTRIBUTION_FEATURES if name != "time_since_last_click"]
    log = AdsLog(len(names), max_modalities, click_rate=_ATTRIBUTION_CLICK_RATE, seed=seed)
    rng = np.random.default_rng([seed, 1])

    def tables() -> Iterator[pa.Table]:
        done = 0
        for codes, y in log.batches(rows, _BATCH_ROWS, seed):
            n = len(y)
            converted = (y == 1) & (rng.random(n) < 0.02)
            recent = rng.random(n) < 0.6
            since = np.where(recent, np.exp(rng.uniform(0, np.log(_MONTH_SECONDS), n)), -1)
            time = (done + np.arange(n)) * _MONTH_SECONDS // rows
            columns: dict[str, npt.NDArray[np.generic]] = {
                "timestamp": time,
                "uid": rng.integers(0, _IDENTIFIERS, n),
                "conversion": converted.astype(np.int64),
                "conversion_timestamp": np.where(converted, time + 3600, -1),
                "conversion_id": np.where(converted, rng.integers(0, _IDENTIFIERS, n), -1),
                "attribution": (converted & (rng.random(n) < 0.5)).astype(np.int64),
                "click": y.astype(np.int64),
                "click_pos": np.where(converted, 0, -1),
                "click_nb": np.where(converted, 1, -1),
                "cost": np.round(rng.exponential(2e-4, n), 6),
                "cpo": np.round(rng.exponential(0.2, n), 6),
                "time_since_last_click": since.astype(np.int64),
            }
            columns |= {name: _identifiers(codes[:, j], feature=j) for j, name in enumerate(names)}
            yield pa.table({name: columns[name] for name in ATTRIBUTION_COLUMNS})
            done += n

    write_delimited(Path(path), tables(), delimiter="\t")
    return log


# -- Criteo AdKDD'21 -----------------------------------------------------------------------------


def write_adkdd_like(
    folder: Path,
    rows: int,
    seed: int,
    noise_sigma: float = 17.0,
    *,
    max_modalities: int = 200,
) -> AdsLog:
    """Write files in the formats of the AdKDD'21 challenge.

    ``aggregated_noisy_data_pairs.csv.gz`` and ``aggregated_noisy_data_singles.csv.gz`` count ``rows``
    records. ``small_train.csv.gz`` and the test files ``X_test.csv.gz`` and ``y_test.csv.gz`` have a
    tenth as many each, of other records of the same law.

    Parameters
    ----------
    folder
        Where to; made if it is not there. Each file appears whole or not at all.
    rows
        Records that the tables count.
    seed
        Seed of the law, the records and the noise: the same seed gives the same files.
    noise_sigma
        Standard deviation of the Gaussian noise on each number of the tables; 0 leaves them exact.
    max_modalities
        Modalities of the largest features.

    Returns
    -------
    AdsLog
        What the records were drawn from: ``sample(rows, seed)`` has the ones that were counted, and the
        value of a feature in the files is its code.

    Notes
    -----
    As in the challenge, a cell of a pair is left out unless more than ten records fall into it, which
    is decided before the noise; a cell of a single feature needs one record. A sale follows a click,
    with probability 0.1.
    """
    _check_rows(rows)
    if not noise_sigma >= 0:
        raise InputError(f"noise_sigma is {noise_sigma}: choose 0 or more")
    log = AdsLog(len(ADKDD_FEATURES), max_modalities, click_rate=0.1, seed=seed)
    apart = max(rows // 10, 1)
    codes, click = log.sample(rows + 2 * apart, seed)
    rng = np.random.default_rng([seed, 2])
    sale = click * (rng.random(len(click)) < 0.1)
    labels = np.stack([click, sale.astype(np.uint8)])
    folder = Path(folder)

    train, test = slice(rows, rows + apart), slice(rows + apart, None)
    for name, order in ((ADKDD_PAIRS_FILE, 2), (ADKDD_SINGLES_FILE, 1)):
        scopes = list(combinations(range(log.n_features), order))
        tables = (_noisy_table(log, codes[:rows], labels[:, :rows], s, noise_sigma, rng) for s in scopes)
        write_delimited(folder / name, tables)
    write_delimited(folder / ADKDD_TRAIN_FILE, [_records(codes[train], labels[:, train])])
    tested = _records(codes[test], labels[:, test])
    for name, columns in zip(ADKDD_TEST_FILES, (ADKDD_FEATURES, ADKDD_LABELS), strict=True):
        write_delimited(folder / name, [tested.select(list(columns))])
    return log


def _records(codes: Codes, labels: npt.NDArray[np.uint8]) -> pa.Table:
    return pa.table([*map(pa.array, [*codes.T.copy(), *labels])], names=[*ADKDD_FEATURES, *ADKDD_LABELS])


def _noisy_table(
    log: AdsLog,
    codes: Codes,
    labels: npt.NDArray[np.uint8],
    scope: Sequence[int],
    sigma: float,
    rng: np.random.Generator,
) -> pa.Table:
    """The published cells over ``scope``, in the column order of the challenge."""
    shape = tuple(log.cards[feature] for feature in scope)
    cells = np.ravel_multi_index(tuple(codes[:, feature] for feature in scope), shape)
    size = int(np.prod(shape))
    counts = np.bincount(cells, minlength=size)
    (kept,) = np.nonzero(counts > (ADKDD_MIN_COUNT if len(scope) > 1 else 0))
    numbers = [counts, *(np.bincount(cells, weights=label, minlength=size) for label in labels)]
    noisy = [number[kept] + rng.normal(0.0, sigma, kept.size) for number in numbers]
    values = np.unravel_index(kept, shape)
    ids = [np.full(kept.size, feature) for feature in scope]
    places = range(1, len(scope) + 1)
    names = [f"feature_{k}_value" for k in places] + [f"feature_{k}_id" for k in places]
    return pa.table([*values, *ids, *noisy], names=[*names, "count", "nb_clicks", "nb_sales"])


# -- both ----------------------------------------------------------------------------------------


def _check_rows(rows: int) -> None:
    if rows < 1:
        raise InputError(f"rows is {rows}: choose 1 or more")


def _identifiers(codes: Codes, feature: int) -> npt.NDArray[np.int64]:
    """Codes as large numbers without order, one for each code, as the published data have them."""
    # 15,485,863 is a prime that does not divide 32,500,000, so distinct codes stay distinct.
    return (codes.astype(np.int64) * 15_485_863 + 7_919 * (feature + 1)) % _IDENTIFIERS
