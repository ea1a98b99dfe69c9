"""The distributions of this tree: the one at its top, and those in ``packages/``."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Distribution(NamedTuple):
    """A distribution: its folder, relative to the top of the tree, and its pyproject.toml."""

    folder: Path
    project: dict[str, Any]

    @property
    def package(self) -> str:
        """The name of its package."""
        pattern: str = self.project["tool"]["setuptools"]["packages"]["find"]["include"][0]
        return pattern.rstrip("*")

    @property
    def scripts(self) -> dict[str, str]:
        """Its console scripts, with what each calls."""
        scripts: dict[str, str] = self.project["project"].get("scripts", {})
        return scripts


def distributions(root: Path = ROOT) -> Iterator[Distribution]:
    """The distributions of a tree, first the one at its top."""
    for path in (root / "pyproject.toml", *sorted(root.glob("packages/*/pyproject.toml"))):
        project = tomllib.loads(path.read_text(encoding="utf-8"))
        yield Distribution(path.parent.relative_to(root), project)
