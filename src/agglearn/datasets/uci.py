"""The two UCI data sets of the paper, as Arrow tables."""

from __future__ import annotations

import pyarrow as pa

from agglearn.datasets.origins import ADULT, BANK, Progress
from agglearn.datasets.sources import obtain

_ADULT_COLUMNS = {
    "age": pa.int64(),
    "workclass": pa.string(),
    "fnlwgt": pa.int64(),
    "education": pa.string(),
    "education-num": pa.int64(),
    "marital-status": pa.string(),
    "occupation": pa.string(),
    "relationship": pa.string(),
    "race": pa.string(),
    "sex": pa.string(),
    "capital-gain": pa.int64(),
    "capital-loss": pa.int64(),
    "hours-per-week": pa.int64(),
    "native-country": pa.string(),
    "income": pa.string(),
}

_BANK_COLUMNS = {
    "age": pa.int64(),
    "job": pa.string(),
    "marital": pa.string(),
    "education": pa.string(),
    "default": pa.string(),
    "housing": pa.string(),
    "loan": pa.string(),
    "contact": pa.string(),
    "month": pa.string(),
    "day_of_week": pa.string(),
    "duration": pa.int64(),
    "campaign": pa.int64(),
    "pdays": pa.int64(),
    "previous": pa.int64(),
    "poutcome": pa.string(),
    "emp.var.rate": pa.float64(),
    "cons.price.idx": pa.float64(),
    "cons.conf.idx": pa.float64(),
    "euribor3m": pa.float64(),
    "nr.employed": pa.float64(),
    "y": pa.string(),
}


def load_adult(*, download: bool = True, progress: Progress | None = None) -> tuple[pa.Table, pa.Table]:
    """Load UCI Adult: who earns more than 50,000 dollars a year.

    Parameters
    ----------
    download
        Whether the network may be used if the files are not on this machine.
    progress
        Called with one line each time a download is tried.

    Returns
    -------
    train, test
        The published split, 32,561 and 16,281 rows: 14 features and the label ``income`` (``<=50K`` or
        ``>50K``, also in the test part, whose file writes a full stop after it). A value that was not
        given is the string ``?``, as in the files.

    Raises
    ------
    InputError
        The files cannot be had, or those found are not the published ones.
    """
    contents = obtain(ADULT, download=download, progress=progress)
    return _parse_adult(contents["adult.data"]), _parse_adult(contents["adult.test"])


def load_bank(*, download: bool = True, progress: Progress | None = None) -> pa.Table:
    """Load UCI Bank marketing (``bank-additional-full``): who subscribes to a term deposit.

    Parameters
    ----------
    download
        Whether the network may be used if the file is not on this machine.
    progress
        Called with one line each time a download is tried.

    Returns
    -------
    pyarrow.Table
        41,188 rows, 20 features and the label ``y`` (``no`` or ``yes``).

    Raises
    ------
    InputError
        The file cannot be had, or the one found is not the published one.

    Notes
    -----
    ``duration`` is known only when the call has ended, and so is the answer; the paper uses it.
    """
    from pyarrow import csv

    (content,) = obtain(BANK, download=download, progress=progress).values()
    return csv.read_csv(
        pa.BufferReader(content),
        parse_options=csv.ParseOptions(delimiter=";"),
        convert_options=csv.ConvertOptions(column_types=_BANK_COLUMNS),
    )


def _parse_adult(content: bytes) -> pa.Table:
    import pyarrow.compute as pc
    from pyarrow import csv

    # The fields are separated by ", " and the test file begins with a comment line.
    is_commented = content.startswith(b"|")
    table = csv.read_csv(
        pa.BufferReader(content.replace(b", ", b",")),
        read_options=csv.ReadOptions(column_names=list(_ADULT_COLUMNS), skip_rows=1 if is_commented else 0),
        convert_options=csv.ConvertOptions(column_types=_ADULT_COLUMNS),
    )
    income = pc.utf8_rtrim(table.column("income"), characters=".")
    return table.set_column(table.num_columns - 1, "income", income)
