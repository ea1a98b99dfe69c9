"""Shared by all runs: options, tables, and writing them into the documentation.

A run is a module with

- ``Plan``, a dataclass whose fields, made by ``option``, are the options of the command line,
- ``run``, which takes a plan and returns ``Findings``, or an exit status if it prints itself,
- ``PAGE`` and ``SECTION`` if its text belongs on a page: the page, from docs/, and the name in its
  marks (options in braces are filled in),
- ``SUMMARY`` if the ``summary`` of its findings belongs there, too: the page and the name,
- ``PINNED``, False if it assigns CPUs itself; otherwise this process gets those not used by
  servers.
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

from disque_trio.process.options import count
from disque_trio.process.options import size as any_size
from disque_trio.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
COMPILED = ROOT / ".venv-compiled" / "bin" / "python"
BUSY = 0.9
"""Above this share of a core, the load generator limits the rate."""
T = TypeVar("T")
K = TypeVar("K")


class DocsError(Exception):
    """The documentation has no marks for the text."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG file in docs/ and its text alternative; without one, no link to it is written."""

    name: str
    svg: str
    alt: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of a run: Markdown, samples (dataclasses) for ``--json``, and pictures."""

    text: str
    samples: Sequence[Any] = ()
    pictures: Sequence[Picture] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """Conditions of the figures besides the machine."""
    summary: str = ""
    """A short version of the text."""


# ---- options -------------------------------------------------------------------------------


def option(
    default: T,
    help: str,
    *,
    quick: T | None = None,
    choices: Sequence[str] = (),
    parse: Callable[[str], Any] | None = None,
) -> Any:
    """A field of a plan, as an option of the command line.

    Args:
        quick: the default with ``--quick``.
        choices: the allowed texts; for a field with several values, any of them, with commas.
        parse: converts a text; by default to the type of ``default``.
    """
    metadata = {"help": help, "quick": quick, "choices": choices, "parse": parse}
    return field(default=default, metadata=metadata)


def numbers(text: str) -> tuple[int, ...]:
    """Parse several numbers of at least 1, separated by commas."""
    return tuple(map(count, text.split(",")))


def words(text: str) -> tuple[str, ...]:
    """Split a command into words."""
    return tuple(shlex.split(text))


def names(choices: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """A parser for several of ``choices``, with commas; the result has the order of ``choices``."""

    def parse(text: str) -> tuple[str, ...]:
        given = text.split(",")
        for name in given:
            if name not in choices:
                raise argparse.ArgumentTypeError(f"{name} is not one of {', '.join(choices)}")
        return tuple(name for name in choices if name in given)

    return parse


def size(least: int) -> Callable[[str], int]:
    """A parser for a number of bytes, at least ``least``."""

    def parse(text: str) -> int:
        value = any_size(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return value

    return parse


def parse(run: str, module: Any, arguments: Sequence[str]) -> tuple[Any, argparse.Namespace]:
    """The plan in ``arguments``, and the options that all runs share."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module.__name__.rpartition('.')[0]} {run}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    quick = {}
    for one in fields(module.Plan):
        quick[one.name] = one.metadata["quick"]
        _add(parser, one.name, one.default, one.metadata)
    if any(value is not None for value in quick.values()):
        parser.add_argument(
            "--quick", action="store_true", help="run for a few seconds, to see that it works"
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
            convert = {int: count, float: float, str: str}[type(default)]
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
    """Show progress; the results go to the standard output."""
    print(text, file=sys.stderr, flush=True)


def child(
    module: str, *arguments: str, function: str = "main", python: str = sys.executable
) -> tuple[str, ...]:
    """The command that runs a function of a module with these arguments in a new process."""
    return (python, "-c", f"import sys, {module} as m; m.{function}(*sys.argv[1:])", *arguments)


@contextmanager
def environment_of(python: str) -> Iterator[dict[str, str]]:
    """The environment in which another Python finds these ``tools`` and ``benchmarks``,
    but the build of ``disque_trio`` that is installed for it, not the sources here."""
    if python == sys.executable:
        yield dict(os.environ)
        return
    with tempfile.TemporaryDirectory() as directory:
        for package in ("benchmarks", "tools"):
            Path(directory, package).symlink_to(ROOT / package)
        yield {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": directory}


# ---- output --------------------------------------------------------------------------------


def section(module: Any, plan: Any) -> str:
    """The name in the marks around the text of a run."""
    return str(module.SECTION).format(**asdict(plan))


def check_place(module: Any, plan: Any) -> None:
    """Raise DocsError if the documentation lacks the marks, before minutes of work."""
    summary = (module.SUMMARY,) if hasattr(module, "SUMMARY") else ()
    for page, name in ((module.PAGE, section(module, plan)), *summary):
        replace_section((DOCS / page).read_text(), name, "")


def write_docs(module: Any, plan: Any, head: str, found: Findings) -> None:
    """Write the text between its marks, after ``head`` and links to pictures with a text
    alternative, and the summary between its own marks."""
    links = [f"![{one.alt}]({one.name})" for one in found.pictures if one.alt]
    _put(module.PAGE, section(module, plan), *links, head, found.text)
    if found.summary:
        _put(*module.SUMMARY, head, found.summary)


def _put(name: str, section: str, *texts: str) -> None:
    page = DOCS / name
    page.write_text(replace_section(page.read_text(), section, "\n\n".join(texts)))


def machine() -> dict[str, str]:
    """The conditions of the figures: date, versions, machine."""
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


def heading(package: str, arguments: Sequence[str], facts: Mapping[str, str]) -> str:
    """The lines above a table: the command of ``package`` that made it, and the conditions.

    Paths in this checkout are relative to its root; other paths are reduced to the name.
    """
    command = shlex.join(("python", "-m", package, *map(_from_the_root, arguments)))
    known = ", ".join(f"{name} {value}" for name, value in facts.items())
    return f"Made by `{command}`.\n{known}."


def _from_the_root(argument: str) -> str:
    def shorter(found: re.Match[str]) -> str:
        path = Path(found[0])
        return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name

    return re.sub(r"(?<![^\s='\",])/[^\s='\",]+", shorter, argument)


def replace_section(text: str, name: str, content: str) -> str:
    """The documentation with ``content`` between the two marks of a section.

    Raises DocsError if they are missing.
    """
    begin, end = f"<!-- bench {name}: begin -->", f"<!-- bench {name}: end -->"
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise DocsError(f"the markers {begin!r} and {end!r} are missing")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


# ---- tables --------------------------------------------------------------------------------


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    lines = ["| " + " | ".join(titles) + " |", "| --- |" + " ---: |" * (len(titles) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def grouped(samples: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The samples by key, with the keys in order of appearance."""
    groups: dict[K, list[T]] = {}
    for sample in samples:
        groups.setdefault(key(sample), []).append(sample)
    return groups


def ratio(a: Sequence[T], b: Sequence[T], value: Callable[[T], float]) -> tuple[str, str]:
    """The median of the ratios of ``a`` to ``b`` per round, in bold, and their range."""
    return spread([value(x) / value(y) for x, y in zip(a, b, strict=True)])


def spread(values: Sequence[float]) -> tuple[str, str]:
    """The median, in bold, and the range."""
    return f"**{median(values):.2f}**", f"{min(values):.2f}-{max(values):.2f}"


def middle(samples: Iterable[T], value: Callable[[T], float], digits: int = 0) -> str:
    """The median of a value."""
    return f"{median(map(value, samples)):,.{digits}f}"


def rates(samples: Sequence[Any]) -> str:
    """The median of the rates, with a + if the load generator limited them."""
    limited = median(one.own_cpu / one.seconds for one in samples) >= BUSY
    return middle(samples, lambda one: one.rate) + ("+" if limited else "")


def milliseconds(samples: Sequence[T], *values: Callable[[T], float]) -> str:
    """The medians of times (s) in ms, separated by slashes."""
    return " / ".join(f"{median(map(value, samples)) * 1000:.2f}" for value in values)
