"""Prints what subcommands find: tables for people, JSON for programs, and how far they are."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TextIO, TypeVar

from disque_trio.cli.subcommands.progress import Meter
from disque_trio.cli.top.cells import cells, fit
from disque_trio.overview.names import shown

Row = TypeVar("Row")

BOLD: Final = "1"
RED: Final = "31"
YELLOW: Final = "33"
DIM: Final = "2"
LEAST: Final = 10
"""Cells that a column keeps when a line does not fit."""
GAP: Final = "  "


class Column(NamedTuple, Generic[Row]):
    """A column of a table.

    Attributes:
        title: its first line.
        cell: the text of a row.
        right: whether it is aligned to the right, as figures are.
        style: the colour of a row's cell, one of those above, or empty.
        shrinks: whether it may be cut off, unless it is aligned to the right.
    """

    title: str
    cell: Callable[[Row], str]
    right: bool = False
    style: Callable[[Row], str] = lambda row: ""
    shrinks: bool = True


def table(
    columns: Sequence[Column[Row]], rows: Sequence[Row], width: int | None, *, colours: bool
) -> list[str]:
    """The lines of a table. If they are longer than ``width`` cells, texts are cut off, the longest
    first, and figures are not. ``width``: None if there is no limit."""
    texts = [[shown(column.cell(row)) for column in columns] for row in rows]
    widths = [
        max([cells(column.title), *[cells(text[at]) for text in texts]])
        for at, column in enumerate(columns)
    ]
    if width is not None:
        _narrow(columns, widths, width)
    lines = [_line([(column.title, BOLD) for column in columns], columns, widths, colours)]
    for row, text in zip(rows, texts, strict=True):
        styled = [(cell, column.style(row)) for cell, column in zip(text, columns, strict=True)]
        lines.append(_line(styled, columns, widths, colours))
    return lines


def _narrow(columns: Sequence[Column[Row]], widths: list[int], width: int) -> None:
    """Take cells from the widest columns of text until a line fits."""
    texts = [at for at, column in enumerate(columns) if column.shrinks and not column.right]
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while excess > 0 and texts:
        widest = max(texts, key=lambda at: widths[at])
        if widths[widest] <= LEAST:
            return
        widths[widest] -= 1
        excess -= 1


def _line(
    styled: Sequence[tuple[str, str]],
    columns: Sequence[Column[Row]],
    widths: Sequence[int],
    colours: bool,
) -> str:
    parts = []
    for (text, style), column, width in zip(styled, columns, widths, strict=True):
        cell = fit(text, width)
        space = " " * (width - cells(cell))
        if style and colours:
            cell = f"\x1b[{style}m{cell}\x1b[m"
        parts.append(space + cell if column.right else cell + space)
    return GAP.join(parts).rstrip()


def as_json(value: Mapping[str, Any]) -> str:
    """One line of JSON. Bytes of names that are not UTF-8 are ``\\udcXX``."""
    text = json.dumps(value, ensure_ascii=False)
    return text if _is_unicode(text) else json.dumps(value)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Printer:
    """Where a subcommand prints.

    Args:
        out: for rows. told: for progress and complaints.

    Attributes:
        name: of the subcommand, in one word. json: whether rows are printed as JSON.
    """

    def __init__(self, name: str, out: TextIO, told: TextIO, *, json: bool) -> None:
        self.name = name
        self.json = json
        self._out = out
        self._told = told
        self._progress: Meter | None = None
        if hasattr(out, "reconfigure"):
            out.reconfigure(encoding="utf-8" if json else None, errors="backslashreplace")

    def rows(
        self,
        columns: Sequence[Column[Row]],
        rows: Sequence[Row],
        fields: Callable[[Row], Mapping[str, Any]],
        none: str = "",
    ) -> None:
        """Print rows: as a table, or ``fields`` of each. ``none``: what to tell people if there are
        none."""
        if self.json:
            for row in rows:
                self.record(fields(row))
        elif not rows and none:
            self.line(none)
        else:
            terminal = self._out.isatty()
            width = shutil.get_terminal_size().columns if terminal else None
            colours = terminal and _wants_colours(os.environ)
            self.lines(table(columns, rows, width, colours=colours))

    def record(self, fields: Mapping[str, Any]) -> None:
        """Print an object of JSON."""
        self.line(as_json(fields))

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines."""
        for line in lines:
            self.line(line)

    def line(self, line: str) -> None:
        """Print a line."""
        self._out.write(f"{line}\n")

    def result(self, fields: Mapping[str, Any], text: str, plain: str) -> None:
        """Print what was done at the end: ``fields`` as JSON, ``text`` on a terminal, or
        ``plain``."""
        self.end()
        if self.json:
            self.record(fields)
        else:
            self.line(text if self._out.isatty() else plain)

    def tell(self, text: str) -> None:
        """Tell the user what was done, where rows do not go."""
        self.end()
        print(text, file=self._told, flush=True)

    def stopped(self) -> None:
        """Tell the user how far it came, if that was being told."""
        progress = self._progress
        self.end()
        if progress is not None:
            print(f"stopped: {progress}", file=self._told, flush=True)

    def complain(self, text: str) -> None:
        """Tell the user of a problem, in one line."""
        self.end()
        self._out.flush()
        print(f"disque: {shown(text)}", file=self._told, flush=True)

    def progress(self, what: str, total: int | None) -> Meter:
        """Begin to tell how far something is: a bar on a terminal, elsewhere a line now and
        then."""
        self.end()
        self._progress = Meter(self._told, what, total, time.monotonic)
        return self._progress

    def end(self) -> None:
        """End the bar, and print everything."""
        if self._progress is not None:
            self._progress.end()
            self._progress = None
        self._out.flush()


def _wants_colours(environment: Mapping[str, str]) -> bool:
    return not environment.get("NO_COLOR") and environment.get("TERM", "dumb") != "dumb"
