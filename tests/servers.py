"""Servers that tests run things on, each in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from agglearn.errors import AgglearnError
from agglearn.spark.session import open_session, require_java


def _postgresql_programs() -> Path | None:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: p.parent.name)
    found = shutil.which("pg_ctl")
    folders = [*installed[::-1], *([Path(found).parent] if found else [])]
    return next((f for f in folders if (f / "initdb").exists() and (f / "pg_ctl").exists()), None)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Any]:
    """A connection to a PostgreSQL server of our own, on a socket in a folder of its own."""
    psycopg = pytest.importorskip("psycopg")
    programs = _postgresql_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed: initdb and pg_ctl were not found")
    # Not under pytest's folder: the server does not run as root, and could not get there.
    folder = Path(tempfile.mkdtemp(prefix="agglearn-pg-"))
    account: dict[str, Any] = {}
    if os.getuid() == 0:
        names = {entry.pw_name: entry for entry in pwd.getpwall()}
        user = names.get("postgres") or names.get("nobody")
        if user is None:
            pytest.skip("PostgreSQL does not run as root, and there is no other account to use")
        account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        os.chown(folder, user.pw_uid, user.pw_gid)

    def run(program: str, *args: str) -> None:
        done = subprocess.run(
            [str(programs / program), "-D", str(folder / "data"), *args],
            cwd=folder,
            stdout=subprocess.DEVNULL,  # the server would keep a pipe open
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
            **account,
        )
        assert done.returncode == 0, f"{program} failed"

    started = False
    try:
        run("initdb", "--username=agglearn", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run("pg_ctl", "start", "--wait", "-l", str(folder / "log"), "-o", options)
        started = True
        with psycopg.connect(
            host=str(folder), user="agglearn", dbname="postgres", autocommit=True
        ) as connection:
            yield connection
    finally:
        if started:
            run("pg_ctl", "stop", "--mode=immediate")
        shutil.rmtree(folder, ignore_errors=True)


SPARK_MASTER = "local-cluster[2,1,1024]"  # two executors, processes of their own, with a core each


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on a cluster of our own."""
    pytest.importorskip("pyspark")
    try:
        require_java()
    except AgglearnError as reason:
        pytest.skip(str(reason))
    session = open_session(SPARK_MASTER, {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@contextmanager
def an_executor_killed(spark: Any, after: float) -> Iterator[list[int]]:
    """Kill an executor so many seconds after tasks have begun to run; gives which, once it has happened."""
    tracker, killed, done = spark.sparkContext.statusTracker(), list[int](), threading.Event()

    def kill_one() -> None:
        while not done.wait(0.02):
            if any(
                stage is not None and stage.numActiveTasks
                for stage in map(tracker.getStageInfo, tracker.getActiveStageIds())
            ):
                done.wait(after)
                killed.append(min(spark_executors()))
                os.kill(killed[0], signal.SIGKILL)
                return

    killer = threading.Thread(target=kill_one)
    killer.start()
    try:
        yield killed
    finally:
        done.set()
        killer.join()


def spark_executors() -> list[int]:
    """The process numbers of the executors that this process's own cluster has now."""
    parents: dict[int, int] = {}
    executors = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(status[1])
                if b"CoarseGrainedExecutorBackend" in (entry / "cmdline").read_bytes() and status[0] != "Z":
                    executors.append(int(entry.name))
            except OSError:  # it ended meanwhile
                continue

    def is_ours(process: int) -> bool:
        while process in parents and process != os.getpid():
            process = parents[process]
        return process == os.getpid()

    return [process for process in executors if is_ours(process)]


_POSTGRESQL_TYPES = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_float32, "real"),
    (pa.types.is_floating, "double precision"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_string, "text"),
)


def copy_to_postgresql(connection: Any, records: Any, table: str) -> None:
    """Make a table of an Arrow table's records."""

    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    columns = ", ".join(
        f"{quoted(f.name)} {next(t for is_type, t in _POSTGRESQL_TYPES if is_type(f.type))}"
        for f in records.schema
    )
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {quoted(table)} CASCADE")
        cursor.execute(f"CREATE TABLE {quoted(table)} ({columns})")
        with cursor.copy(f"COPY {quoted(table)} FROM STDIN") as copy:
            for row in zip(*(c.to_pylist() for c in records.columns), strict=True):
                copy.write_row(row)
