"""Tells how to install an extra that is missing."""

import shlex
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path


def how_to_install(extra: str) -> str:
    """Return the command that installs ``extra`` for the running Python, from the checkout if there
    is one. The package is in no registry, so its name alone would not be found."""
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    root = Path(__file__).resolve().parents[1]
    if (root / "pyproject.toml").exists():
        return f"{pip} -e {shlex.quote(f'{root}[{extra}]')}"
    try:
        known = requires("disque-trio") or []
    except PackageNotFoundError:
        known = []
    needed = [line.partition(";") for line in known]
    names = [name.strip() for name, _, marker in needed if marker.split() == _marker(extra)]
    return f"{pip} {shlex.join(names)}" if names else f"the extra {extra} of disque-trio"


def _marker(extra: str) -> list[str]:
    return ["extra", "==", f'"{extra}"']
