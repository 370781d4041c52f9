"""A Spark session: the one at work in this process, or a new one.

What runs in executors is this package, at the same version, with its dependencies. Masters of this machine
(``local[…]``, ``local-cluster[…]``) run the interpreter and the package of the driver; on a cluster both are
installed there, or sent along (``spark.archives``), and :func:`require_package` says so where they are not.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from agglearn.errors import AgglearnError, InputError, MissingExtraError
from agglearn.runtime.speech import option

T = TypeVar("T")

OLDEST_JAVA = 17
_OURS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.broadcast.compress": "false",  # weights are noise to it
}


def open_session(master: str | None = None, conf: Mapping[str, str] | None = None) -> Any:
    """The SparkSession of this process, or a new one.

    Parameters
    ----------
    master
        Where to run: ``local[4]``, ``spark://host:7077``, ``yarn``, ``k8s://…``; by default what Spark's own
        configuration says, and this machine where it says nothing.
    conf
        Further settings of Spark, for a session that is not there yet.

    Raises
    ------
    MissingExtraError
        Without pyspark.
    AgglearnError
        Without a Java that Spark runs on, or where the session does not come up.
    """
    session_class = _session_class()
    session = session_class.getActiveSession()
    if session is not None:
        return _as_asked(session, master, conf or {})
    require_java()
    wanted = {**_OURS, **(_of_this_machine(master) if master and master.startswith("local") else {})}
    builder = session_class.builder.appName("agglearn")
    if master is not None:
        builder = builder.master(master)
    for key, value in {**wanted, **(conf or {})}.items():
        builder = builder.config(key, value)
    try:
        with _without_warnings():
            session = builder.getOrCreate()
    except Exception as error:  # pyspark's own, Java's by way of py4j, or the system's
        reason = next(
            (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
        )
        raise AgglearnError(f"Spark did not start on {master or 'its default master'}: {reason}") from error
    atexit.register(session.stop)  # Java's own end, without ours, is a page of complaints
    return session


def parse_conf(settings: Sequence[str] | None) -> dict[str, str]:
    """Settings of Spark from words such as ``spark.executor.memory=4g``."""
    found = {}
    for word in settings or ():
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise InputError(
                f"{option('spark_conf')} {word!r} is not key=value, as spark.executor.memory=4g is"
            )
        found[key.strip()] = value
    return found


def is_frame(value: Any) -> bool:
    """Whether this is a Spark DataFrame, of either kind; pyspark is not imported to know."""
    return any(
        kind.__module__.startswith("pyspark.sql.") and kind.__name__ == "DataFrame"
        for kind in type(value).__mro__
    )


def require_java() -> None:
    """Refuse where there is no Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    program = Path(home) / "bin" / "java" if home else shutil.which("java")
    advice = f"install a JDK of version {OLDEST_JAVA} or later, and name its folder in JAVA_HOME"
    if program is None or not Path(program).exists():
        raise AgglearnError(f"Spark runs on Java, and {program or 'no java'} was not found: {advice}")
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if version is None or int(version[1]) < OLDEST_JAVA:
        found = f"is of version {version[1]}" if version else "does not say its version"
        raise AgglearnError(f"Spark needs a later Java: {program} {found}; {advice}")


def require_package(session: Any) -> None:
    """Refuse where executors do not run this very package."""
    from agglearn import __version__

    advice = "install agglearn with its dependencies there, or send an environment along (spark.archives)"
    try:
        found = session.sparkContext.parallelize([0], 1).map(_package_version).first()
    except Exception as error:
        missing = re.search(r"No module named '([^']+)'", str(error))
        if missing is None:
            raise
        raise AgglearnError(f"Spark's executors have no {missing[1]}: {advice}") from None
    if found != __version__:
        raise AgglearnError(
            f"Spark's executors have agglearn {found}, and this is {__version__}: {advice}, of one version"
        )


def asked(job: Callable[[], T]) -> T:
    """What a job gives; where Spark gives it up, one line says why."""
    try:
        return job()
    except Exception as error:
        if not type(error).__module__.startswith(("py4j", "pyspark")):
            raise
        lines = [line.strip() for line in str(error).splitlines()]
        reasons = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
        reason = (reasons or lines)[-1]
        if reason.startswith("agglearn.errors."):  # a task's own words
            raise AgglearnError(reason.partition(": ")[2]) from error
        raise AgglearnError(f"Spark gave the job up: {reason}") from error


def _package_version(_: int) -> str:
    from agglearn import __version__

    return __version__


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Where pyspark is imported and begins, it warns of versions of packages that are not used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _session_class() -> Any:
    """pyspark's class of sessions."""
    try:
        with _without_warnings():
            from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("Spark", "spark") from None
    return SparkSession


def _as_asked(session: Any, master: str | None, conf: Mapping[str, str]) -> Any:
    """The session at work, if it is what was asked for."""
    context = session.sparkContext
    if master is not None and master != context.master:
        raise InputError(
            f"a Spark session is at work on {context.master}: stop it first, or leave out "
            f"{option('master', master)}"
        )
    for key, value in conf.items():
        if session.conf.get(key, None) != value:
            raise InputError(
                f"a Spark session is at work already, and {key} is not {value!r} there: set it where the "
                "session is made, or stop that one first"
            )
    return session


def _of_this_machine(master: str) -> dict[str, str]:
    """Settings by which processes of this machine find Spark, one another and this package.

    Executors of ``local-cluster`` start from SPARK_HOME, and reach the driver by an address: the loopback one
    is there even where the machine's name leads nowhere.
    """
    import pyspark

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    waiting = {}
    executors = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master)
    if executors:
        os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
        # Without a number of cores to wait for, the first work all goes to the first executor.
        waiting = {"spark.cores.max": str(int(executors[1]) * int(executors[2]))}
        waiting["spark.scheduler.minRegisteredResourcesRatio"] = "1.0"
    ours = str(Path(__file__).parents[2])
    paths = [ours, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    found = os.pathsep.join(dict.fromkeys(p for p in paths if p))
    return {"spark.executorEnv.PYTHONPATH": found, **waiting}
