"""What all runs have in common: options, tables, and the places of these in the documentation.

A run is a module with

- ``Plan``, a dataclass whose fields, made by ``option``, are the command line's options,
- ``run``, which takes a plan and returns ``Findings``, or an exit status if it prints by itself,
- ``PAGE`` and ``SECTION`` if its text has a place in docs/: the page, and the name in the marks
  there (options in braces are filled in),
- ``SUMMARY`` if the ``summary`` of its findings has one: the page and that name,
- ``PINNED``, False if it decides itself on which CPUs its processes are; else this one gets those
  that the servers leave.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from disque_trio.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
COMPILED = ROOT / ".venv-compiled" / "bin" / "python"
BUSY = 0.9
"""From this share of a core on, the load generator is what limits a rate."""
T = TypeVar("T")
K = TypeVar("K")


class DocsError(Exception):
    """The documentation has no place for the text."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG file of docs/ and its alternative text; without one no link to it is written."""

    name: str
    svg: str
    alt: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a run found: Markdown, its samples (dataclasses) for ``--json``, and pictures."""

    text: str
    samples: Sequence[Any] = ()
    pictures: Sequence[Picture] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """What the figures depend on besides the machine."""
    summary: str = ""
    """The same in short."""


# ---- options -------------------------------------------------------------------------------


def option(
    default: T,
    help: str,
    *,
    quick: T | None = None,
    choices: Sequence[str] = (),
    parse: Callable[[str], Any] | None = None,
) -> Any:
    """A field of a plan that is an option of the command line.

    Args:
        quick: the default with ``--quick``. choices: the texts that are allowed; of a field with
            several, any of them with commas. parse: makes the value of a text, by default as the
            type of ``default`` has it.
    """
    metadata = {"help": help, "quick": quick, "choices": choices, "parse": parse}
    return field(default=default, metadata=metadata)


def number(text: str) -> int:
    """An argument that is 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"a number of 1 or more is needed, not {text}")
    return value


def numbers(text: str) -> tuple[int, ...]:
    """An argument of several of them, with commas."""
    return tuple(map(number, text.split(",")))


def words(text: str) -> tuple[str, ...]:
    """A command as its words."""
    return tuple(shlex.split(text))


def names(choices: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Parses several of ``choices``, with commas; they come out in the order of ``choices``."""

    def parse(text: str) -> tuple[str, ...]:
        given = text.split(",")
        for name in given:
            if name not in choices:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(choices)}")
        return tuple(name for name in choices if name in given)

    return parse


def size(least: int) -> Callable[[str], int]:
    """Parses a number of bytes of ``least`` or more."""

    def parse(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"at least {least}")
        return int(text)

    return parse


def parse(run: str, module: Any, arguments: Sequence[str]) -> tuple[Any, argparse.Namespace]:
    """The plan that ``arguments`` ask for, and the options that are those of every run."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tools.bench {run}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    quick = {}
    for one in fields(module.Plan):
        quick[one.name] = one.metadata["quick"]
        _add(parser, one.name, one.default, one.metadata)
    if any(value is not None for value in quick.values()):
        parser.add_argument(
            "--quick", action="store_true", help="a few seconds' run, to see that it works"
        )
    if hasattr(module, "PAGE"):
        parser.add_argument(
            "--write-docs", action="store_true", help=f"replace the text in docs/{module.PAGE}"
        )
        parser.add_argument(
            "--json", type=Path, metavar="FILE", help="write every sample of every round"
        )
    options = parser.parse_args(arguments)
    if getattr(options, "quick", False):
        parser.set_defaults(**{name: value for name, value in quick.items() if value is not None})
        options = parser.parse_args(arguments)
    return module.Plan(**{name: getattr(options, name) for name in quick}), options


def _add(
    parser: argparse.ArgumentParser, name: str, default: Any, metadata: Mapping[str, Any]
) -> None:
    flag = "--" + name.replace("_", "-")
    choices, convert = metadata["choices"], metadata["parse"]
    several = isinstance(default, tuple)
    if default is False:
        parser.add_argument(flag, action="store_true", help=metadata["help"])
        return
    if convert is None:
        if several:
            convert = names(choices) if choices else numbers
        else:
            convert = {int: number, float: float, str: str}[type(default)]
    metavar = "COMMAND" if convert is words else "X,X" if several else None if choices else "X"
    shown = default
    if several:
        shown = (shlex.join if convert is words else ",".join)(map(str, default))
    help = metadata["help"]
    if several and choices:
        help += f", of {', '.join(choices)}"
    if default != "":
        help += f" (default: {shown})"
    parser.add_argument(
        flag,
        type=convert,
        default=default,
        choices=None if several else choices or None,
        metavar=metavar,
        help=help.replace("%", "%%"),
    )


def say(text: str) -> None:
    """Tell a person how far it is; the results go to the standard output."""
    print(text, file=sys.stderr, flush=True)


def child(
    module: str, *arguments: str, function: str = "main", python: str = sys.executable
) -> tuple[str, ...]:
    """The command that runs a function of a module with these arguments in a process of its own."""
    return (python, "-c", f"import sys, {module} as m; m.{function}(*sys.argv[1:])", *arguments)


@contextmanager
def environment_of(python: str) -> Iterator[dict[str, str]]:
    """The environment in which another Python finds ``tools`` as it is here, and of
    ``disque_trio`` the form that is installed for it: beside the sources it would find these."""
    if python == sys.executable:
        yield dict(os.environ)
        return
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "tools").symlink_to(ROOT / "tools")
        yield {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": directory}


# ---- output --------------------------------------------------------------------------------


def section(module: Any, plan: Any) -> str:
    """The name in the marks between which the text of a run has its place."""
    return str(module.SECTION).format(**asdict(plan))


def check_place(module: Any, plan: Any) -> None:
    """Raise DocsError when the documentation has no place for the text; before minutes of work."""
    summary = (module.SUMMARY,) if hasattr(module, "SUMMARY") else ()
    for page, name in ((module.PAGE, section(module, plan)), *summary):
        replace_section((DOCS / page).read_text(), name, "")


def write_docs(module: Any, plan: Any, head: str, found: Findings) -> None:
    """Put the text between its marks, behind ``head`` and the pictures that have an alternative
    text; and the summary between its own."""
    links = [f"![{one.alt}]({one.name})" for one in found.pictures if one.alt]
    _put(module.PAGE, section(module, plan), *links, head, found.text)
    if found.summary:
        _put(*module.SUMMARY, head, found.summary)


def _put(name: str, section: str, *texts: str) -> None:
    page = DOCS / name
    page.write_text(replace_section(page.read_text(), section, "\n\n".join(texts)))


def machine() -> dict[str, str]:
    """Names what the figures depend on: date, versions, machine."""
    try:
        done = subprocess.run(("redis-server", "--version"), capture_output=True, text=True)
        found = re.search(r"v=(\S+)", done.stdout)
    except FileNotFoundError:
        found = None
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "disque-trio": VERSION,
        "redis-server": found[1] if found else "?",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "cpu": f"{os.cpu_count()} x {_cpu_model()}",
    }


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def heading(arguments: Sequence[str], facts: Mapping[str, str]) -> str:
    """The lines above a table: the command that made it and what it ran on.

    Files of this checkout are named as seen from its root, where the command is to be typed; of
    others only the name is told.
    """
    command = shlex.join(("python", "-m", "tools.bench", *map(_from_the_root, arguments)))
    known = ", ".join(f"{name} {value}" for name, value in facts.items())
    return f"Made by `{command}`.\n{known}."


def _from_the_root(argument: str) -> str:
    def shorter(found: re.Match[str]) -> str:
        path = Path(found[0])
        return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name

    return re.sub(r"(?<![^\s='\",])/[^\s='\",]+", shorter, argument)


def replace_section(text: str, name: str, content: str) -> str:
    """The documentation with ``content`` between the two marks of a section.

    Raises DocsError when they are not there.
    """
    begin, end = f"<!-- bench {name}: begin -->", f"<!-- bench {name}: end -->"
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise DocsError(f"the markers {begin!r} and {end!r} are missing")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


# ---- tables --------------------------------------------------------------------------------


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; the first column is text, the others are figures."""
    lines = ["| " + " | ".join(titles) + " |", "| --- |" + " ---: |" * (len(titles) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def grouped(samples: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The samples by a key, in the order in which the keys were first seen."""
    groups: dict[K, list[T]] = {}
    for sample in samples:
        groups.setdefault(key(sample), []).append(sample)
    return groups


def ratio(a: Sequence[T], b: Sequence[T], value: Callable[[T], float]) -> tuple[str, str]:
    """The median of the rounds' ratios of ``a`` to ``b``, bold, and their range."""
    return spread([value(x) / value(y) for x, y in zip(a, b, strict=True)])


def spread(values: Sequence[float]) -> tuple[str, str]:
    """The median, bold, and the range."""
    return f"**{median(values):.2f}**", f"{min(values):.2f}-{max(values):.2f}"


def middle(samples: Iterable[T], value: Callable[[T], float], digits: int = 0) -> str:
    """The median of a value."""
    return f"{median(map(value, samples)):,.{digits}f}"


def rates(samples: Sequence[Any]) -> str:
    """The median of the rates, with a + if the load generator was what limited them."""
    limited = median(one.own_cpu / one.seconds for one in samples) >= BUSY
    return middle(samples, lambda one: one.rate) + ("+" if limited else "")


def milliseconds(samples: Sequence[T], *values: Callable[[T], float]) -> str:
    """The medians of times (s) as ms, with slashes."""
    return " / ".join(f"{median(map(value, samples)) * 1000:.2f}" for value in values)
