"""The distributions of the tree fit each other."""

import re
from itertools import chain

import pytest

from disque_trio.version import VERSION
from tests.support import ROOT
from tools.workspace import Distribution, distributions

TOP, *OTHERS = distributions()


def pinned(distribution: Distribution) -> set[str]:
    """Return what a distribution requires of the others, all with a version."""
    project = distribution.project["project"]
    lines = [
        *project["dependencies"],
        *chain.from_iterable(project["optional-dependencies"].values()),
    ]
    names = {other.project["project"]["name"] for other in (TOP, *OTHERS)} - {project["name"]}
    return {line for line in lines if re.split(r"[\[=<>;]", line)[0] in names}


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.folder.name)
def test_it_has_the_version_of_the_queue(other: Distribution) -> None:
    assert other.project["project"]["version"] == VERSION
    assert f"disque-trio=={VERSION}" in other.project["project"]["dependencies"]


def test_the_extras_of_the_queue_bring_packages_of_its_version() -> None:
    assert pinned(TOP)
    assert [line for line in pinned(TOP) if not line.endswith(f"=={VERSION}")] == []


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.folder.name)
def test_an_extra_that_the_queue_hands_on_exists(other: Distribution) -> None:
    project = other.project["project"]
    wanted = [line for line in pinned(TOP) if line.startswith(f"{project['name']}[")]
    names = {
        name
        for line in wanted
        for name in re.findall(r"[\w-]+", line.partition("[")[2].partition("]")[0])
    }
    assert names <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.folder.name)
def test_it_has_all_that_a_distribution_needs(other: Distribution) -> None:
    folder = ROOT / other.folder
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert len((folder / "README.md").read_text().splitlines()) < 60
    assert "\ntest:\n" in (folder / "Makefile").read_text()
    assert (folder / "imports.toml").exists()
    assert (folder / other.package / "py.typed").exists()
    assert [*folder.glob("docs/*.md")]


def test_the_top_of_the_tree_is_short() -> None:
    files = [path for path in ROOT.iterdir() if path.is_file() and path.name[0] != "."]
    assert len(files) < 15
    assert len((ROOT / "pyproject.toml").read_text().splitlines()) < 200
