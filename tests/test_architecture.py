"""The house stays as CONTRIBUTING.md draws it: rooms look one way, and no two modules at each other."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import agglearn

SOURCE = Path(agglearn.__file__).parent
CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


@cache
def _imports(module: str) -> frozenset[str]:
    """Modules of ours that a module imports, anywhere: also in a function, or for its types alone."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports by dots: name the module"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = inner & MODULES.keys()
            others = len(inner) > len(modules)
            found |= modules | ({node.module} if others and node.module in MODULES else set())
    return frozenset(found - {"agglearn"})


def _rooms() -> list[str]:
    """The rooms in the order that CONTRIBUTING.md gives them: first column of its table, in backticks."""
    rows = re.findall(r"^\| `([a-z_]+)/?` \|", CONTRIBUTING.read_text(), re.MULTILINE)
    return [row for row in rows if row not in ("tests", "docs", "evidence")]


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_every_room_has_its_place_in_the_order() -> None:
    assert {_room(m) for m in MODULES if m not in ("agglearn", "agglearn.__main__")} == set(_rooms())


@pytest.mark.parametrize("module", [m for m in MODULES if _room(m) not in ("", "__main__")])
def test_a_module_looks_only_at_its_own_room_and_those_before_it(module: str) -> None:
    order = {room: place for place, room in enumerate(_rooms())}
    for other in _imports(module):
        assert order[_room(other)] <= order[_room(module)], f"{module} imports {other}"


def test_no_module_sees_itself_by_way_of_others() -> None:
    ways: dict[str, list[str]] = {}

    def visit(module: str, way: list[str]) -> None:
        assert module not in way, " → ".join([*way[way.index(module) :], module])
        if module not in ways:
            for other in sorted(_imports(module)):
                visit(other, [*way, module])
            ways[module] = way

    for module in MODULES:
        if module != "agglearn":
            visit(module, [])


def test_nobody_outside_asks_an_engine_what_kind_it_is() -> None:
    for module, path in MODULES.items():
        if not module.startswith("agglearn.field.engines"):
            asked = re.search(r"isinstance\([^)]*Engine|\.engine\s*[!=]=", path.read_text())
            assert asked is None, f"{module}: {asked and asked[0]}"


def test_public_names_are_listed_and_none_of_them_is_hidden_by_a_module() -> None:
    assert set(agglearn.__all__) <= set(dir(agglearn))
    for name in agglearn.__all__:
        assert f"agglearn.{name}" not in MODULES
        assert getattr(agglearn, name) is not None
