"""Tells how to install an extra that is missing."""

import re
import shlex
import sys
from pathlib import Path

# An extra may be that of another distribution of ours.
_OWN = re.compile(r"(disque-\w+)\[([\w,-]+)\]")


def how_to_install(extra: str) -> str:
    """Return the command that installs ``extra`` for the running Python, from the checkout if there
    is one. Our distributions are in no registry, so their names alone would not be found."""
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    root = Path(__file__).resolve().parents[1]
    if (root / "pyproject.toml").exists():
        return f"{pip} -e {shlex.quote(f'{root}[{extra}]')}"
    names = _needed("disque-trio", extra)
    return f"{pip} {shlex.join(names)}" if names else f"the extra {extra} of disque-trio"


def _needed(distribution: str, extra: str) -> list[str]:
    """What an extra of one of our distributions needs, besides these; nothing if the distribution
    is not installed."""
    # It imports email and zipfile, and is needed only here.
    from importlib.metadata import PackageNotFoundError, requires

    try:
        known = requires(distribution) or []
    except PackageNotFoundError:
        return []
    found: list[str] = []
    for name, _, marker in (line.partition(";") for line in known):
        if marker.split() != ["extra", "==", f'"{extra}"']:
            continue
        if own := _OWN.match(name):
            for other in own[2].split(","):
                found += _needed(own[1], other)
        else:
            found.append(name.strip())
    return found
