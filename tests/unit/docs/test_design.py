"""docs/design.md shows the packages as they import each other."""

import re

import grimp
import pytest

from tests.support import ROOT

PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
# Modules of a few lines that anything may use, or that only start something.
SMALL = {
    "disk",
    "extras",
    "form",
    "glob",
    "histogram",
    "lazily",
    "native",
    "pressure_command",
    "pytest_plugin",
    "rng",
    "server",
    "sizes",
    "svg",
    "version",
}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Return all imports, including those for type checkers."""
    return grimp.build_graph("disque_trio")


@pytest.fixture(scope="module")
def imports(graph: grimp.ImportGraph) -> dict[str, set[str]]:
    """Return what each package imports from the others."""
    found: dict[str, set[str]] = {}
    for module in graph.modules - {"disque_trio"}:
        package = module.split(".")[1]
        targets = graph.find_modules_directly_imported_by(module)
        names = {target.split(".")[1] for target in targets if "." in target}
        found.setdefault(package, set()).update(names - {package} - SMALL)
    return {package: names for package, names in found.items() if package not in SMALL}


def test_the_table_has_all_packages_with_what_they_import(imports: dict[str, set[str]]) -> None:
    table = PAGE.partition("| package | owns | imports |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| .* \|([^|]*)\|$", table, re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", cell)) for name, cell in rows} == imports


def test_imports_go_down_in_the_picture(imports: dict[str, set[str]]) -> None:
    picture = PAGE.partition("```text\n")[2].partition("```")[0]
    level = {
        name: number
        for number, line in enumerate(picture.splitlines())
        for name in re.findall(r"\w+", line)[1:] or re.findall(r"\w+", line)
    }
    assert imports.keys() <= level.keys()
    wrong = [(a, b) for a, targets in imports.items() for b in targets if level[a] >= level[b]]
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle(graph: grimp.ImportGraph) -> None:
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # Repeatedly remove packages that import no remaining one, until nothing is left, or only
    # circles and what imports them.
    while done := {module for module, targets in left.items() if not targets & left.keys()}:
        left = {module: targets for module, targets in left.items() if module not in done}
    assert left == {}
