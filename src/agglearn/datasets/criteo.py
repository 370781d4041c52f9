"""The two Criteo data sets of the paper, read from files that the user has put in the data home.

Their licences do not let them be fetched for the user, so a missing file is an error that says what to
put where. Every feature is read as a string: the values are identifiers, not quantities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from agglearn.datasets.sources import DATA_VARIABLE, data_home, find_file
from agglearn.errors import InputError

ATTRIBUTION_FILE = "criteo_attribution_dataset.tsv.gz"
ATTRIBUTION_PAGE = "https://ailab.criteo.com/criteo-attribution-modeling-bidding-dataset/"
ATTRIBUTION_COLUMNS = (
    "timestamp",
    "uid",
    "campaign",
    "conversion",
    "conversion_timestamp",
    "conversion_id",
    "attribution",
    "click",
    "click_pos",
    "click_nb",
    "cost",
    "cpo",
    "time_since_last_click",
    *(f"cat{i}" for i in range(1, 10)),
)

CRITEO_ATTRIBUTION_FEATURES: tuple[str, ...] = (
    "campaign",
    "time_since_last_click",
    *(f"cat{i}" for i in range(1, 10)),
)
"""The eleven features of Criteo Attribution, as listed in the code that the paper's authors published.

``click_pos`` and ``click_nb`` are no candidates: they are −1 where there was no click.
"""

ADKDD_PAGE = "https://github.com/criteo-research/criteo-privacy-preserving-ml-competition"
ADKDD_FEATURES: tuple[str, ...] = tuple(f"hash_{i}" for i in range(19))
ADKDD_LABELS = ("click", "sale")
ADKDD_PAIRS_FILE = "aggregated_noisy_data_pairs.csv.gz"
ADKDD_SINGLES_FILE = "aggregated_noisy_data_singles.csv.gz"
ADKDD_TRAIN_FILE = "small_train.csv.gz"
ADKDD_TRAIN_FILES = ("X_train.csv.gz", "y_train.csv.gz")
ADKDD_TEST_FILES = ("X_test.csv.gz", "y_test.csv.gz")
ADKDD_RECORDS_FILE = "criteo-ppml-challenge-adkdd21-dataset-raw-granular-data.csv.gz"
ADKDD_MORE_FILE = "criteo-ppml-challenge-adkdd21-dataset-additional-test-data.csv.gz"

_SIX_HOURS = 6 * 3600


# -- Criteo Attribution --------------------------------------------------------------------------


def criteo_attribution_path() -> Path:
    """Return where ``criteo_attribution_dataset.tsv.gz`` (or the unpacked file) is on this machine.

    Raises
    ------
    InputError
        It is not in the data home; the message says where to get it and where to put it.
    """
    return _locate(ATTRIBUTION_FILE, None, ATTRIBUTION_PAGE)


def open_criteo_attribution(path: Path | None = None) -> pa.RecordBatchReader:
    """Stream Criteo Attribution, a batch of about a megabyte of text at a time.

    Parameters
    ----------
    path
        A file in the published format; looked for in the data home if not given.

    Returns
    -------
    pyarrow.RecordBatchReader
        An iterable of record batches with the columns of `CRITEO_ATTRIBUTION_FEATURES`, all strings,
        and the label ``click``, 0 or 1.

    Raises
    ------
    InputError
        The file is missing, damaged, or not in the published format; damage further down the file
        shows while iterating.

    Notes
    -----
    ``time_since_last_click`` is in seconds and is not categorical as published. It becomes
    ⌊log₂(seconds + 6 h)⌋, the authors' bins; unlike theirs, ``none`` (no earlier click) is a value of
    its own and not in one bin with the most recent clicks.
    """
    from pyarrow import csv

    source = criteo_attribution_path() if path is None else Path(path)
    types = {name: pa.string() for name in CRITEO_ATTRIBUTION_FEATURES}
    types |= {"time_since_last_click": pa.int64(), "click": pa.int64()}
    _check_header(source, list(types), "\t")
    try:
        batches = csv.open_csv(
            str(source),
            parse_options=csv.ParseOptions(delimiter="\t"),
            convert_options=csv.ConvertOptions(column_types=types, include_columns=list(types)),
        )
    except (pa.ArrowInvalid, OSError) as error:  # it reads the first block at once
        raise _damaged(source, error) from error
    names = [*CRITEO_ATTRIBUTION_FEATURES, "click"]
    schema = pa.schema([(name, pa.int64() if name == "click" else pa.string()) for name in names])

    def rows() -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                columns = [
                    _recency_bins(batch.column(name))
                    if name == "time_since_last_click"
                    else batch.column(name)
                    for name in names
                ]
                yield pa.record_batch(columns, schema=schema)
        except (pa.ArrowInvalid, OSError) as error:
            raise _damaged(source, error) from error

    return pa.RecordBatchReader.from_batches(schema, rows())


def _recency_bins(seconds: pa.Array) -> pa.Array:
    values = seconds.fill_null(-1).to_numpy(zero_copy_only=False)
    # frexp gives the exponent e of v = m·2^e with ½ ≤ m < 1, so ⌊log₂ v⌋ = e − 1 without rounding.
    exponents = np.frexp((np.maximum(values, 0) + _SIX_HOURS).astype(np.float64))[1] - 1
    codes = np.where(values < 0, 0, exponents).astype(np.int32)
    names = pa.array(["none", *map(str, range(1, 64))])
    return pa.DictionaryArray.from_arrays(codes, names).dictionary_decode()


# -- Criteo AdKDD'21 -----------------------------------------------------------------------------


def adkdd_tables(folder: Path | None = None) -> tuple[Path, Path]:
    """Return the paths of the AdKDD'21 noisy tables: pairs, then singles.

    Parameters
    ----------
    folder
        Where the challenge's files are; the data home if not given.

    Raises
    ------
    InputError
        A file is missing; the message says which, and where to put it.
    """
    return (
        _locate(ADKDD_PAIRS_FILE, folder, ADKDD_PAGE),
        _locate(ADKDD_SINGLES_FILE, folder, ADKDD_PAGE),
    )


def adkdd_records(folder: Path | None = None) -> tuple[Path, Path]:
    """Return the paths of the AdKDD'21 records, published after the challenge.

    Both are CSV files with the columns ``hash_0`` … ``hash_18``, ``click`` and ``sale``, too large to load
    at once: :func:`~agglearn.aggregation.api.aggregate` streams them.

    Parameters
    ----------
    folder
        Where the challenge's files are; the data home if not given.

    Returns
    -------
    records
        The 88 million records that the noisy tables count.
    more
        Some 4 million others, which no table counts.

    Raises
    ------
    InputError
        A file is missing, or not in the published format.
    """
    found = tuple(_locate(name, folder, ADKDD_PAGE) for name in (ADKDD_RECORDS_FILE, ADKDD_MORE_FILE))
    for path in found:
        _check_header(path, (*ADKDD_FEATURES, *ADKDD_LABELS), ",")
    return found[0], found[1]


def load_adkdd_train(folder: Path | None = None) -> pa.Table:
    """Load the few individual records of the AdKDD'21 challenge.

    They are in ``small_train.csv.gz``, or in ``X_train.csv.gz`` beside ``y_train.csv.gz``.

    Parameters
    ----------
    folder
        Where the challenge's files are; the data home if not given.

    Returns
    -------
    pyarrow.Table
        ``hash_0`` … ``hash_18`` as strings, ``click`` and ``sale`` as integers.

    Raises
    ------
    InputError
        The file is missing, damaged, or not in the published format.
    """
    if all(_find(name, folder) for name in ADKDD_TRAIN_FILES) and not _find(ADKDD_TRAIN_FILE, folder):
        return _read_beside(ADKDD_TRAIN_FILES, folder)
    return _read_adkdd(_locate(ADKDD_TRAIN_FILE, folder, ADKDD_PAGE), (*ADKDD_FEATURES, *ADKDD_LABELS))


def load_adkdd_test(folder: Path | None = None) -> pa.Table:
    """Load the test records of the AdKDD'21 challenge: ``X_test.csv.gz`` beside ``y_test.csv.gz``.

    Parameters
    ----------
    folder
        Where the challenge's files are; the data home if not given.

    Returns
    -------
    pyarrow.Table
        ``hash_0`` … ``hash_18`` as strings, ``click`` and ``sale`` as integers.

    Raises
    ------
    InputError
        A file is missing, damaged, or not in the published format, or the two differ in length.
    """
    return _read_beside(ADKDD_TEST_FILES, folder)


def _read_beside(names: Sequence[str], folder: Path | None) -> pa.Table:
    """Features from one file and the labels of the same records from another."""
    x_path, y_path = (_locate(name, folder, ADKDD_PAGE) for name in names)
    table = _read_adkdd(x_path, ADKDD_FEATURES)
    labels = _read_adkdd(y_path, ADKDD_LABELS)
    if table.num_rows != labels.num_rows:
        raise InputError(
            f"{x_path} has {table.num_rows:,} rows and {y_path.name} {labels.num_rows:,}: they must"
            f" be of one length, fetch both again from {ADKDD_PAGE}"
        )
    for name in ADKDD_LABELS:
        table = table.append_column(name, labels.column(name))
    return table


def _read_adkdd(path: Path, names: Sequence[str]) -> pa.Table:
    from pyarrow import csv

    _check_header(path, names, ",")
    types = {name: pa.int64() if name in ADKDD_LABELS else pa.string() for name in names}
    convert = csv.ConvertOptions(column_types=types, include_columns=list(names))
    try:
        return csv.read_csv(str(path), convert_options=convert)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(path, error) from error


# -- both ----------------------------------------------------------------------------------------


def _find(packed_name: str, folder: Path | None) -> Path | None:
    """A file that may also lie unpacked, in the folder given or in the data folders."""
    name = packed_name.removesuffix(".gz")
    if folder is None:
        return find_file(name)
    candidates = (Path(folder) / name, Path(folder) / packed_name)
    return next((path for path in candidates if path.is_file()), None)


def _locate(packed_name: str, folder: Path | None, page: str) -> Path:
    """The same file, or how to come by it."""
    found = _find(packed_name, folder)
    if found is None:
        where = f"{data_home()} (set {DATA_VARIABLE} for another folder)" if folder is None else folder
        raise InputError(f"{packed_name} is not there: get it from {page} and put it into {where}")
    return found


def _check_header(path: Path, names: Sequence[str], delimiter: str) -> None:
    import gzip
    import zlib

    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            header = file.readline(65_536).decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, error) from error
    present = {field.strip().strip('"') for field in header.split(delimiter)}
    absent = [name for name in names if name not in present]
    if absent:
        raise InputError(
            f"{path} has no column {', '.join(absent)} in its first line: it is not in the published"
            f" format ({'tab' if delimiter == chr(9) else 'comma'} separated, with a header)"
        )


def _damaged(path: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(f"{path} cannot be read ({reason}): fetch it again")
