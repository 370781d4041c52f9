"""What is shipped: a wheel that installs clean, with all that it needs at run time inside."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import agglearn
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*pip, "--wheel-dir", str(folder), str(REPOSITORY)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_has_the_version_of_the_package_and_everything_it_reads(wheel: Path) -> None:
    assert wheel.name.startswith(f"agglearn-{agglearn.__version__}-")
    names = set(zipfile.ZipFile(wheel).namelist())
    source = REPOSITORY / "src"
    shipped = {str(p.relative_to(source)) for p in (source / "agglearn").rglob("*") if p.is_file()}
    shipped = {name for name in shipped if "__pycache__" not in name}
    assert {"agglearn/py.typed", "agglearn/export/scorer.js", "agglearn/page/assets/page.js"} <= shipped
    assert shipped <= names


def test_an_installed_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
    subprocess.run([*pip, str(tmp_path), str(wheel)], check=True, timeout=120)
    for arguments in (["--version"], ["--help"], ["--show-completion", "bash"]):
        done = subprocess.run(
            [sys.executable, "-m", "agglearn", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout
        if arguments == ["--version"]:
            assert done.stdout.strip() == f"agglearn {agglearn.__version__}"


def test_every_extra_that_a_message_names_exists_and_all_has_those_a_user_needs() -> None:
    project = (REPOSITORY / "pyproject.toml").read_text()
    extras = set(
        re.findall(r"^(\w+) = \[", project.split("[project.optional-dependencies]")[1], re.MULTILINE)
    )
    named = set()
    for path in (REPOSITORY / "src").rglob("*.py"):
        named |= set(re.findall(r"agglearn\[(\w+)\]", path.read_text()))
    assert named <= extras
    everything = re.search(r'^all = \["agglearn\[(.*)\]"\]', project, re.MULTILINE)
    assert everything is not None
    assert named <= set(everything[1].split(","))
