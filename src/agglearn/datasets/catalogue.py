"""What data sets there are, where they lie, and files of them for a user to work on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from agglearn.datasets import criteo
from agglearn.datasets.delimited import write_delimited
from agglearn.datasets.origins import ADULT, BANK, CENSUS, CREDIT, FARS, FLIGHTS, NURSERY, Origin, Progress
from agglearn.datasets.packaged import load_census, load_credit, load_fars, load_flights, load_nursery
from agglearn.datasets.sources import DATA_VARIABLE, data_home, find_file
from agglearn.datasets.uci import load_adult, load_bank
from agglearn.errors import InputError


@dataclass(frozen=True)
class DatasetInfo:
    """A data set that can be loaded.

    Attributes
    ----------
    name
        What `fetch` knows it by.
    description
        One line.
    rows
        Records in all its parts, or None where they are published only as tables.
    features
        Number of features.
    label, positive
        The label column and its positive value.
    licence
        The licence of the data, which this package does not carry.
    files
        Names of the raw files in the data home.
    fetchable
        Whether `fetch` can get it; if not, the user puts the files into the data home.
    found
        The folder that has all the raw files, or None.
    """

    name: str
    description: str
    rows: int | None
    features: int
    label: str
    positive: str
    licence: str
    files: tuple[str, ...]
    fetchable: bool
    found: Path | None

    @property
    def where(self) -> str:
        """The folder that has the files, or what is still to be done, for people to read."""
        if self.found is not None:
            return str(self.found)
        return "not yet fetched" if self.fetchable else f"to be put into {data_home()}"


_LOADERS: dict[str, Callable[..., pa.Table | tuple[pa.Table, pa.Table]]] = {
    "adult": load_adult,
    "bank": load_bank,
    "fars": load_fars,
    "credit": load_credit,
    "census": load_census,
    "flights": load_flights,
    "nursery": load_nursery,
}


def available() -> list[DatasetInfo]:
    """Return the data sets that can be loaded, and where their files are on this machine."""
    attribution = (criteo.ATTRIBUTION_FILE,)
    adkdd = (
        criteo.ADKDD_PAIRS_FILE,
        criteo.ADKDD_SINGLES_FILE,
        criteo.ADKDD_TRAIN_FILE,
        *criteo.ADKDD_TEST_FILES,
    )
    return [
        _public(
            ADULT,
            name="adult",
            description="UCI Adult: who earns more than 50,000 dollars a year (train and test)",
            rows=32_561 + 16_281,
            features=14,
            label="income",
            positive=">50K",
        ),
        _public(
            BANK,
            name="bank",
            description="UCI Bank marketing (Moro, Cortez, Rita 2014): who subscribes a deposit",
            rows=41_188,
            features=20,
            label="y",
            positive="yes",
        ),
        _public(
            FARS,
            name="fars",
            description="FARS 2001: who of those involved in a fatal accident died",
            rows=100_968,
            features=27,
            label="fatal",
            positive="yes",
            licence="public domain",
        ),
        _public(
            CREDIT,
            name="credit",
            description="UCI Default of credit card clients (Yeh, Lien 2009): who does not pay next month",
            rows=30_000,
            features=23,
            label="default.payment.next.month",
            positive="1",
        ),
        _public(
            CENSUS,
            name="census",
            description="UCI Census income 1994-95: who has more than 50,000 dollars a year (train and test)",
            rows=199_523 + 99_762,
            features=40,
            label="income",
            positive="50000+",
        ),
        _public(
            FLIGHTS,
            name="flights",
            description="Flights from New York 2013: which arrive more than 15 minutes late",
            rows=327_346,
            features=13,
            label="late",
            positive="yes",
            licence="CC0",
        ),
        _public(
            NURSERY,
            name="nursery",
            description="UCI Nursery: which applications to nursery schools had priority",
            rows=12_960,
            features=8,
            label="priority",
            positive="yes",
        ),
        DatasetInfo(
            name="criteo-attribution",
            description="Criteo Attribution: which display of an ad is clicked",
            rows=16_468_027,
            features=len(criteo.CRITEO_ATTRIBUTION_FEATURES),
            label="click",
            positive="1",
            licence="CC BY-NC-SA 4.0",
            files=attribution,
            fetchable=False,
            found=_folder_of(attribution),
        ),
        DatasetInfo(
            name="criteo-adkdd21",
            description="Criteo AdKDD'21 challenge: noisy tables of clicks, and some records",
            rows=None,
            features=len(criteo.ADKDD_FEATURES),
            label="click",
            positive="1",
            licence="terms of the challenge",
            files=adkdd,
            fetchable=False,
            found=_folder_of(adkdd),
        ),
    ]


def _public(
    origin: Origin,
    *,
    name: str,
    description: str,
    rows: int,
    features: int,
    label: str,
    positive: str,
    licence: str = "CC BY 4.0",
) -> DatasetInfo:
    """A set that can be fetched."""
    files = tuple(file.name for file in origin.files)
    return DatasetInfo(
        name=name,
        description=description,
        rows=rows,
        features=features,
        label=label,
        positive=positive,
        licence=licence,
        files=files,
        fetchable=True,
        found=_folder_of(files),
    )


def fetch(
    name: str,
    destination: Path | None = None,
    *,
    progress: Progress | None = None,
    download: bool = True,
) -> list[Path]:
    """Write a data set as CSV files with a header, ready for ``agglearn aggregate``.

    Parameters
    ----------
    name
        A set that `available` says is fetchable: ``bank`` writes ``bank.csv``; ``adult`` writes ``adult.csv``
        and ``adult.test.csv``, its published test records, and ``census`` likewise.
    destination
        Folder to write to, made if it is not there; the current one if not given. Files of these names
        are replaced, each in one step.
    progress
        Called with one line each time a download is tried.
    download
        Whether the network may be used if the raw files are not on this machine.

    Returns
    -------
    list of pathlib.Path
        The files written.

    Raises
    ------
    InputError
        The name is not known, the data cannot be had, or the folder cannot be made.
    StoreError
        The folder cannot be written to.
    """
    if name not in _LOADERS:
        raise InputError(_not_fetchable(name))
    loaded = _LOADERS[name](download=download, progress=progress)
    parts = loaded if isinstance(loaded, tuple) else (loaded,)
    tables = dict(zip((f"{name}.csv", f"{name}.test.csv"), parts, strict=False))
    folder = Path.cwd() if destination is None else Path(destination)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made ({error.strerror}): choose another folder") from error
    for file_name, table in tables.items():
        write_delimited(folder / file_name, [table])
    return [folder / file_name for file_name in tables]


def _not_fetchable(name: str) -> str:
    infos = available()
    fetchable = ", ".join(info.name for info in infos if info.fetchable)
    for info in infos:
        if info.name == name:
            page = criteo.ADKDD_PAGE if "adkdd" in name else criteo.ATTRIBUTION_PAGE
            return (
                f"{name} cannot be fetched for you: accept its licence at {page} and put"
                f" {', '.join(info.files)} into {data_home()} (set {DATA_VARIABLE} for another folder)"
            )
    return f"there is no data set called {name!r}: choose from {fetchable}"


def _folder_of(names: tuple[str, ...]) -> Path | None:
    paths = [find_file(name.removesuffix(".gz")) for name in names]
    return None if None in paths or paths[0] is None else paths[0].parent
