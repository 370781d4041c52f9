"""What data sets there are, where they lie, and files of them for a user to work on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from agglearn.datasets import criteo
from agglearn.datasets.delimited import write_delimited
from agglearn.datasets.sources import (
    ADULT,
    BANK,
    DATA_VARIABLE,
    Progress,
    data_home,
    find_file,
)
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


def available() -> list[DatasetInfo]:
    """Return the data sets that can be loaded, and where their files are on this machine."""
    adult = tuple(file.name for file in ADULT.files)
    bank = tuple(file.name for file in BANK.files)
    attribution = (criteo.ATTRIBUTION_FILE,)
    adkdd = (
        criteo.ADKDD_PAIRS_FILE,
        criteo.ADKDD_SINGLES_FILE,
        criteo.ADKDD_TRAIN_FILE,
        *criteo.ADKDD_TEST_FILES,
    )
    return [
        DatasetInfo(
            name="adult",
            description="UCI Adult: who earns more than 50,000 dollars a year (train and test)",
            rows=32_561 + 16_281,
            features=14,
            label="income",
            positive=">50K",
            licence="CC BY 4.0",
            files=adult,
            fetchable=True,
            found=_folder_of(adult),
        ),
        DatasetInfo(
            name="bank",
            description="UCI Bank marketing (Moro, Cortez, Rita 2014): who subscribes a deposit",
            rows=41_188,
            features=20,
            label="y",
            positive="yes",
            licence="CC BY 4.0",
            files=bank,
            fetchable=True,
            found=_folder_of(bank),
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
        ``adult`` (writes ``adult.csv`` and ``adult.test.csv``) or ``bank`` (``bank.csv``).
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
    tables: dict[str, pa.Table]
    if name == "adult":
        train, test = load_adult(download=download, progress=progress)
        tables = {"adult.csv": train, "adult.test.csv": test}
    elif name == "bank":
        tables = {"bank.csv": load_bank(download=download, progress=progress)}
    else:
        raise InputError(_not_fetchable(name))
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
