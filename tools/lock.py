"""Writes the lock files of what the container image and the Debian package contain.

    python -m tools.lock

``requirements.txt`` has the packages that they contain, those of the extra ``packaged``, besides
the distributions of this tree;
``build-requirements.txt`` those that compile them. Each names one version of each package, for all
supported versions of Python, with the SHA-256 of its files: pip refuses any other file.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from tools.workspace import distributions

DIRECTORY = Path("tools/packaging")
PYTHON = "3.11"  # the oldest that is supported


def to_build() -> list[str]:
    """The requirements of a compiled build."""
    project = tomllib.loads(Path("pyproject.toml").read_text())
    to_compile = project["project"]["optional-dependencies"]["compile"]
    return [*project["build-system"]["requires"], *to_compile]


def to_package() -> list[str]:
    """The requirements of what is packaged."""
    projects = {one.project["project"]["name"]: one.project["project"] for one in distributions()}
    found = [*projects["disque-trio"]["dependencies"]]
    left = [Requirement("disque-trio[packaged]")]
    while left:
        one = left.pop()
        for extra in one.extras:
            for text in projects[one.name]["optional-dependencies"][extra]:
                requirement = Requirement(text)
                if requirement.name in projects:
                    left.append(requirement)
                else:
                    found.append(text)
    return found


def locked(text: str) -> dict[str, tuple[Requirement, list[str]]]:
    """The packages of a lock file by name: the requirement, and the hashes that it allows."""
    found = {}
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            words, *hashes = line.split(" --hash=")
            requirement = Requirement(words.strip())
            found[requirement.name] = (requirement, [text.strip() for text in hashes])
    return found


def _compile(name: str, *arguments: str, requirements: str = "") -> None:
    """Write a lock file, with the newest versions that the requirements allow."""
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", PYTHON]
    command += ["--generate-hashes", "--no-annotate", "--upgrade", "--custom-compile-command"]
    command += ["make lock", "--output-file", str(DIRECTORY / name), *arguments]
    subprocess.run([sys.executable, "-m", *command], input=requirements, text=True, check=True)


def main() -> None:
    """Write both."""
    _compile("requirements.txt", "-", requirements="\n".join(to_package()))
    _compile("build-requirements.txt", "-", requirements="\n".join(to_build()))


if __name__ == "__main__":
    main()
