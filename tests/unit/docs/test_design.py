"""docs/design.md shows the distributions, and the packages of each, as they import each other."""

import re
from functools import cache

import grimp
import pytest

from tests.support import ROOT
from tools.workspace import distributions

PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
HOUSES = {house.package: ROOT / house.folder / house.package for house in distributions()}
# Modules of a few lines that anything may use, or that only start something.
SMALL = {
    "disk",
    "extras",
    "form",
    "glob",
    "histogram",
    "job_options",
    "lazily",
    "native",
    "pytest_plugin",
    "rng",
    "server",
    "svg",
    "version",
}


@cache
def graph() -> grimp.ImportGraph:
    """Return all imports, including those for type checkers."""
    return grimp.build_graph(*HOUSES)


def imports(house: str) -> dict[str, set[str]]:
    """Return what each package of a distribution imports from the others."""
    found: dict[str, set[str]] = {}
    for module in graph().find_descendants(house):
        package = module.split(".")[1]
        targets = graph().find_modules_directly_imported_by(module)
        names = {target.split(".")[1] for target in targets if target.startswith(f"{house}.")}
        found.setdefault(package, set()).update(names - {package})
    folders = {name for name in found if (HOUSES[house] / name).is_dir()} - SMALL
    return {name: found[name] & folders for name in folders}


def section(title: str) -> str:
    """Return a section of the page."""
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def levels(text: str) -> dict[str, int]:
    """Return on which line of the picture each name is."""
    picture = text.partition("```text\n")[2].partition("```")[0]
    return {
        name: number
        for number, line in enumerate(picture.splitlines())
        for name in re.findall(r"\w+", line)[1:] or re.findall(r"\w+", line)
    }


def test_the_street_has_all_distributions_with_what_they_import() -> None:
    text = section("The street")
    rows = re.findall(r"^\| \[`[\w-]+`\]\(.*?\) \| `(\w+)` \| .* \|([^|]*)\|$", text, re.MULTILINE)
    found = {}
    for house in HOUSES:
        modules = graph().find_descendants(house) | {house}
        targets = {
            target for one in modules for target in graph().find_modules_directly_imported_by(one)
        }
        outside = {target for target in targets if not target.startswith((house, f"{house}."))}
        assert {target.split(".")[0] for target in outside} <= HOUSES.keys()
        found[house] = {target.split(".")[1] for target in outside if "." in target}
    assert {name: set(re.findall(r"`(\w+)`", cell)) for name, cell in rows} == found


@pytest.mark.parametrize("house", HOUSES)
def test_the_table_has_all_packages_with_what_they_import(house: str) -> None:
    table = section(house).partition("| package | owns | imports |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| .* \|([^|]*)\|$", table, re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", cell)) for name, cell in rows} == imports(house)


@pytest.mark.parametrize("house", HOUSES)
def test_imports_go_down_in_the_picture(house: str) -> None:
    level = levels(section(house))
    found = imports(house)
    assert found.keys() <= level.keys()
    wrong = [(a, b) for a, targets in found.items() for b in targets if level[a] >= level[b]]
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    every = graph().modules
    left = {module: graph().find_modules_directly_imported_by(module) for module in every}
    # Repeatedly remove packages that import no remaining one, until nothing is left, or only
    # circles and what imports them.
    while done := {module for module, targets in left.items() if not targets & left.keys()}:
        left = {module: targets for module, targets in left.items() if module not in done}
    assert left == {}
