"""The lock files name what the container image and the Debian package contain."""

from collections.abc import Iterable

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support import ROOT
from tools.lock import DIRECTORY, locked, to_build, to_package


@pytest.mark.parametrize(
    ("name", "requirements"),
    [
        ("requirements.txt", [*map(Requirement, to_package())]),
        ("build-requirements.txt", [*map(Requirement, to_build())]),
    ],
)
def test_each_requirement_has_one_version_that_it_allows(
    name: str, requirements: Iterable[Requirement]
) -> None:
    known = locked((ROOT / DIRECTORY / name).read_text())
    assert requirements
    for requirement in requirements:
        pinned, _ = known[canonicalize_name(requirement.name)]
        (version,) = pinned.specifier
        assert version.operator == "=="
        assert requirement.specifier.contains(Version(version.version)), requirement


@pytest.mark.parametrize("name", ["requirements.txt", "build-requirements.txt"])
def test_each_package_has_hashes(name: str) -> None:
    known = locked((ROOT / DIRECTORY / name).read_text())
    assert len(known) > 5
    for requirement, hashes in known.values():
        assert hashes, requirement
        assert all(len(text) == len("sha256:") + 64 for text in hashes), requirement


@pytest.mark.parametrize("name", ["config/container/Containerfile", "tools/packaging/deb.sh"])
def test_nothing_else_is_installed(name: str) -> None:
    """pip takes what is in a lock file, with its hash, or what was built here."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    commands = [line.strip() for line in text.splitlines() if " install " in line and "pip" in line]
    commands = [part for line in commands for part in line.split("&&") if " install " in part]
    assert commands
    for command in commands:
        if "apt-get" not in command:
            assert ("--require-hashes" in command) != ("--no-index" in command), command
