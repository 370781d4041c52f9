"""Five more public sets, whose files travel in packages of the registry, as Arrow tables.

Each label has two values, ``yes`` and ``no`` where it is made here of a published column. What is left out,
and why, is said by each loader.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from agglearn.datasets.origins import CENSUS, CREDIT, FARS, FLIGHTS, NURSERY, Progress
from agglearn.datasets.sources import obtain

LATE_MINUTES = 15
"""A flight is late if it arrives more than so many minutes after the time planned."""

_WEIGHT = "instance weight"
_CENSUS_COLUMNS = {
    "age": pa.int64(),
    "class of worker": pa.string(),
    "industry code": pa.int64(),
    "occupation code": pa.int64(),
    "education": pa.string(),
    "wage per hour": pa.int64(),
    "enrolled in edu inst last wk": pa.string(),
    "marital status": pa.string(),
    "major industry code": pa.string(),
    "major occupation code": pa.string(),
    "race": pa.string(),
    "hispanic origin": pa.string(),
    "sex": pa.string(),
    "member of a labor union": pa.string(),
    "reason for unemployment": pa.string(),
    "full or part time employment stat": pa.string(),
    "capital gains": pa.int64(),
    "capital losses": pa.int64(),
    "dividends from stocks": pa.int64(),
    "tax filer status": pa.string(),
    "region of previous residence": pa.string(),
    "state of previous residence": pa.string(),
    "detailed household and family stat": pa.string(),
    "detailed household summary in household": pa.string(),
    _WEIGHT: pa.float64(),
    "migration code-change in msa": pa.string(),
    "migration code-change in reg": pa.string(),
    "migration code-move within reg": pa.string(),
    "live in this house 1 year ago": pa.string(),
    "migration prev res in sunbelt": pa.string(),
    "num persons worked for employer": pa.int64(),
    "family members under 18": pa.string(),
    "country of birth father": pa.string(),
    "country of birth mother": pa.string(),
    "country of birth self": pa.string(),
    "citizenship": pa.string(),
    "own business or self employed": pa.int64(),
    "fill inc questionnaire for veteran's admin": pa.string(),
    "veterans benefits": pa.int64(),
    "weeks worked in year": pa.int64(),
    "year": pa.int64(),
    "income": pa.string(),
}

_FLIGHTS_COLUMNS = {
    "year": pa.int64(),
    "month": pa.int64(),
    "day": pa.int64(),
    "sched_dep_time": pa.int64(),
    "arr_delay": pa.int64(),
    "sched_arr_time": pa.int64(),
    "carrier": pa.string(),
    "flight": pa.int64(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "distance": pa.int64(),
    "hour": pa.int64(),
    "minute": pa.int64(),
}

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def load_fars(*, download: bool = True, progress: Progress | None = None) -> pa.Table:
    """Load FARS: who of those involved in a fatal accident in the United States in 2001 died.

    Parameters
    ----------
    download
        Whether the network may be used if the file is not on this machine.
    progress
        Called with one line each time a download is tried.

    Returns
    -------
    pyarrow.Table
        100,968 rows, 27 features under their published names and the label ``fatal``: ``yes`` where
        ``INJURY_SEVERITY`` is ``Fatal_Injury``. ``RACE`` and ``HISPANIC_ORIGIN`` are left out: they are
        recorded for the dead only, and so tell the label.

    Raises
    ------
    InputError
        The file cannot be had, or the one found is not the published one.
    """
    records = _parse_keel(obtain(FARS, download=download, progress=progress)["fars.dat"])
    records = records.drop_columns(["RACE", "HISPANIC_ORIGIN"])
    return _labelled(records, "INJURY_SEVERITY", "Fatal_Injury", "fatal")


def load_nursery(*, download: bool = True, progress: Progress | None = None) -> pa.Table:
    """Load UCI Nursery: which applications to nursery schools in Ljubljana had priority.

    Parameters
    ----------
    download
        Whether the network may be used if the file is not on this machine.
    progress
        Called with one line each time a download is tried.

    Returns
    -------
    pyarrow.Table
        12,960 rows, every combination of 8 features once, and the label ``priority``: ``yes`` where the rank,
        ``Class``, is ``priority``, ``no`` for the four others (``not_recom`` would follow from ``Health``).

    Raises
    ------
    InputError
        The file cannot be had, or the one found is not the published one.
    """
    records = _parse_keel(obtain(NURSERY, download=download, progress=progress)["nursery.dat"])
    return _labelled(records, "Class", "priority", "priority")


def load_credit(*, download: bool = True, progress: Progress | None = None) -> pa.Table:
    """Load UCI Default of credit card clients (Taiwan 2005): who does not pay next month.

    Parameters
    ----------
    download
        Whether the network may be used if the file is not on this machine.
    progress
        Called with one line each time a download is tried.

    Returns
    -------
    pyarrow.Table
        30,000 rows, 23 features and the label ``default.payment.next.month`` (0 or 1). The number of the
        client, ``ID``, is left out; amounts of money, which are whole, are integers.

    Raises
    ------
    InputError
        The file cannot be had, or the one found is not the published one.
    """
    from pyarrow import csv

    content = obtain(CREDIT, download=download, progress=progress)["UCI_Credit_card.csv"]
    records = csv.read_csv(pa.BufferReader(content)).drop_columns(["ID"])
    return records.cast(pa.schema([(name, pa.int64()) for name in records.column_names]))


def load_census(*, download: bool = True, progress: Progress | None = None) -> tuple[pa.Table, pa.Table]:
    """Load UCI Census income (KDD): who has more than 50,000 dollars a year, in surveys of 1994 and 1995.

    Parameters
    ----------
    download
        Whether the network may be used if the files are not on this machine.
    progress
        Called with one line each time a download is tried.

    Returns
    -------
    train, test
        The published split, 199,523 and 99,762 rows: 40 features under their published names and the label
        ``income`` (``- 50000`` or ``50000+``). The instance weight is left out: it says how many people a
        record stands for, nothing about the person. A value that was not given is the string ``?``.

    Raises
    ------
    InputError
        The files cannot be had, or those found are not the published ones.
    """
    contents = obtain(CENSUS, download=download, progress=progress)
    train, test = (_parse_census(contents[file.name]) for file in CENSUS.files)
    return train, test


def load_flights(*, download: bool = True, progress: Progress | None = None) -> pa.Table:
    """Load the flights that left New York in 2013: which arrived more than 15 minutes late.

    Parameters
    ----------
    download
        Whether the network may be used if the file is not on this machine.
    progress
        Called with one line each time a download is tried.

    Returns
    -------
    pyarrow.Table
        327,346 rows, 13 features that are known before the flight leaves, among them ``weekday``, which is
        made of the date, and the label ``late`` (``no`` or ``yes``). Flights that were cancelled or diverted
        have no arrival and are left out. A tail number that was not given is the string ``?``.

    Raises
    ------
    InputError
        The file cannot be had, or the one found is not the published one.
    """
    return _parse_flights(obtain(FLIGHTS, download=download, progress=progress)["flights.csv"])


# -- the formats ---------------------------------------------------------------------------------


def _parse_keel(content: bytes) -> pa.Table:
    """A file of the KEEL repository: a line ``@attribute`` for each column, ``@data``, then fields.

    Numbers that are declared real are written whole (``000`` is zero), and read as integers.
    """
    from pyarrow import csv

    head, _, body = content.partition(b"@data")
    columns = {}
    for line in head.decode().splitlines():
        if line.startswith("@attribute"):
            _, name, kind = line.split(None, 2)
            columns[name] = pa.string() if kind.startswith("{") else pa.int64()
    return csv.read_csv(
        pa.BufferReader(body.lstrip().replace(b", ", b",")),
        read_options=csv.ReadOptions(column_names=list(columns)),
        convert_options=csv.ConvertOptions(column_types=columns),
    )


def _parse_census(content: bytes) -> pa.Table:
    import pyarrow.compute as pc
    from pyarrow import csv

    records = csv.read_csv(
        pa.BufferReader(content.replace(b", ", b",")),
        read_options=csv.ReadOptions(column_names=list(_CENSUS_COLUMNS)),
        convert_options=csv.ConvertOptions(column_types=_CENSUS_COLUMNS),
    ).drop_columns([_WEIGHT])
    income = pc.utf8_rtrim(records.column("income"), characters=".")
    return records.set_column(records.num_columns - 1, "income", income)


def _parse_flights(content: bytes) -> pa.Table:
    import pyarrow.compute as pc
    from pyarrow import csv

    read = csv.read_csv(
        pa.BufferReader(content),
        convert_options=csv.ConvertOptions(
            column_types=_FLIGHTS_COLUMNS,
            include_columns=list(_FLIGHTS_COLUMNS),
            null_values=["", "NA"],
            strings_can_be_null=True,
        ),
    )
    read = read.filter(pc.is_valid(read.column("arr_delay")))
    columns: dict[str, Any] = {}
    for name in read.column_names:
        if name not in ("year", "arr_delay"):
            columns[name] = read.column(name)
        if name == "day":
            columns["weekday"] = _weekday(*(read.column(part) for part in ("year", "month", "day")))
    columns["tailnum"] = pc.fill_null(columns["tailnum"], "?")
    columns["late"] = _yes(pc.greater(read.column("arr_delay"), LATE_MINUTES))
    return pa.table(columns)


def _weekday(year: Any, month: Any, day: Any) -> pa.Array:
    """The English names of days, whatever language the machine speaks."""
    import pyarrow.compute as pc

    months = (year.to_numpy() - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month.to_numpy() - 1)
    days = months.astype("datetime64[D]") + (day.to_numpy() - 1)
    return pa.array(_WEEKDAYS).take(pc.day_of_week(pa.array(days)))


def _labelled(records: pa.Table, column: str, positive: str, label: str) -> pa.Table:
    """Records with a label of two values in the place of a column with more."""
    import pyarrow.compute as pc

    values = _yes(pc.equal(records.column(column), positive))
    return records.drop_columns([column]).append_column(label, values)


def _yes(holds: Any) -> Any:
    import pyarrow.compute as pc

    return pc.if_else(holds, "yes", "no")
