"""Tells how to install an extra that is missing."""

import shlex
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path


def how_to_install(
    extra: str, distribution: str = "disque-trio", package: Path = Path(__file__).parent
) -> str:
    """Return the command that installs ``extra`` for the running Python, from the checkout if there
    is one. The distributions are in no registry, so their names alone would not be found.

    Args:
        distribution: whose extra it is. package: the folder of its package.
    """
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    root = package.resolve().parent
    if (root / "pyproject.toml").exists():
        return f"{pip} -e {shlex.quote(f'{root}[{extra}]')}"
    try:
        known = requires(distribution) or []
    except PackageNotFoundError:
        known = []
    needed = [line.partition(";") for line in known]
    names = [name.strip() for name, _, marker in needed if marker.split() == _marker(extra)]
    return f"{pip} {shlex.join(names)}" if names else f"the extra {extra} of {distribution}"


def _marker(extra: str) -> list[str]:
    return ["extra", "==", f'"{extra}"']
