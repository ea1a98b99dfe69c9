"""Types of arguments of ``disque-pipeline`` that ``process.options`` lacks."""

import argparse
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from disque_spark.audit.rules import KINDS
from disque_spark.defaults import NO_DIRECTORY
from disque_trio.process.options import whole

number = partial(whole, most=2**31 - 1)


def given(text: str) -> str:
    """A path that is not empty: an unset shell variable would otherwise mean this directory."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got an empty string")
    return text


def kinds(text: str) -> list[str]:
    """Kinds of findings, separated by commas."""
    found = [kind.strip() for kind in text.split(",") if kind.strip()]
    if not found:
        raise argparse.ArgumentTypeError("expected kinds of findings, separated by commas")
    for kind in found:
        if kind not in KINDS:
            near = get_close_matches(kind, KINDS, 1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(KINDS)}"
            raise argparse.ArgumentTypeError(f"{kind}: no such kind of finding; {meant}")
    return found


def setting(text: str) -> tuple[str, str]:
    """The two parts of NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, not {text!r}")
    return name, value


def path(text: str) -> Path | str:
    """A ``Path``; a URI stays a string."""
    text = given(text)
    return text if "://" in text or text.startswith("file:") else Path(text)


def no_directory(text: str) -> str:
    """An option of earlier releases, which is refused."""
    raise argparse.ArgumentTypeError(f"{NO_DIRECTORY}. Leave the option out")
