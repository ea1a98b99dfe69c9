"""The code blocks of the documentation, which are fenced or indented, and which test types them."""

import ast
import fnmatch
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from disque_bananaq.commands.table import build_table
from disque_trio.cli.commandtable import built_in_table
from tests.support import ROOT

_FENCE = re.compile(r"( *)(```+|~~~+)(\w*)")
_TITLE = re.compile(r"(#+) (.*)")

# Why no test types a block.
REASONS = {
    "containers": "needs Docker or Podman",
    "elsewhere": "names servers that this machine does not have",
    "kubernetes": "needs a cluster of Kubernetes",
    "long": "measures or builds for minutes",
    "network": "installs packages from the network",
    "packages": "builds a package for minutes, and installs it as root",
    "part": "is a part of a program, which is shown without the rest",
    "root": "needs root, or systemd",
    "shown": "is not typed: a drawing, output, or a part of a file",
    "spark": "is run or parsed by the tests of the pages about Spark",
    "usage": "is a synopsis",
}
TYPED: dict[str, dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("typed.yaml").read_text(encoding="utf-8")
)
_TABLES = (*built_in_table().values(), *build_table().values())
_REQUESTS = {*(command.name.upper() for command in _TABLES), "CREATE"}  # the latter is SQL
# What is not typed, whatever page it is in.
_DATA = re.compile(r"[{]|!\[|\[\w+\]$|server [{]|\d+ \*", re.MULTILINE)
_DATA_LANGUAGES = ("text", "yaml", "ini")


@dataclass(frozen=True)
class Block:
    """A block of code.

    Args:
        page: its path, relative to the top of the tree. line: where it begins, from 1.
        titles: those above it, from that of the page to the nearest.
        language: that of the fence, or "text"; empty if it is indented.
        text: its contents, without the common indentation.
    """

    page: str
    line: int
    titles: tuple[str, ...]
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text.splitlines()[0]}"

    @property
    def is_transcript(self) -> bool:
        """Whether it also shows output: commands follow a ``$``."""
        return self.language == "console" or self.text.startswith("$ ")

    def lines(self) -> list[str]:
        """The commands in it, one per line; without those of other programs (``<<END``)."""
        text = re.sub(r"\\\n\s*", "", self.text)
        if self.is_transcript:
            return re.findall(r"^\$ (.*)$", text, re.MULTILINE)
        text = re.sub(r"<<'?(\w+)'?.*?\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
        return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]

    def typed(self) -> list[tuple[str, list[str]]]:
        """The commands of a transcript, each with the lines that it prints."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]
        return [(part.split("\n")[0], part.rstrip().split("\n")[1:]) for part in parts]


def block(page: str, beginning: str) -> Block:
    """Return the block of a page that begins with this text."""
    [found] = [block for block in blocks(page) if block.text.startswith(beginning)]
    return found


def pages() -> list[str]:
    """Return all pages with blocks to type, as paths relative to the top of the tree."""
    patterns = ("*.md", "docs/**/*.md", "examples/README.md", "examples/*/README.md")
    patterns += ("packages/*/README.md", "packages/*/docs/**/*.md")
    found = [page for pattern in patterns for page in ROOT.glob(pattern)]
    return sorted(str(page.relative_to(ROOT)) for page in found)


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page, from top to bottom."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    titles: tuple[str, ...] = ()
    number = 0
    while number < len(lines):
        start, line, end = number, lines[number], number + 1
        if fence := _FENCE.match(line):
            while not re.match(rf" *{fence[2]}$", lines[end]):
                end += 1
            text = "\n".join(lines[start + 1 : end])
            yield Block(page, start + 1, titles, fence[3] or "text", textwrap.dedent(text))
            end += 1
        elif title := _TITLE.match(line):
            titles = (*titles[: len(title[1]) - 1], title[2])
        elif line.startswith("    ") and (start == 0 or not lines[start - 1].strip()):
            while end < len(lines) and re.match(r" {4}|\s*$", lines[end]):
                end += 1
            text = textwrap.dedent("\n".join(lines[start:end])).strip("\n")
            yield Block(page, start + 1, titles, "", text)
        number = end


def is_typed(block: Block) -> bool:
    """Whether a reader types it, or saves it as a program."""
    if block.language in _DATA_LANGUAGES or _DATA.match(block.text):
        return False
    first = block.text.split()[0]
    return not (block.language == "" and first.isupper() and first in _REQUESTS)


def is_python(block: Block) -> bool:
    """Return whether it is Python: a fence says so, or it is indented and could be nothing else."""
    if block.language or block.is_transcript or "(" not in block.text:
        return block.language == "python"
    try:
        compile(block.text, block.page, "exec", ast.PyCF_ONLY_AST)
    except SyntaxError:
        return False
    return True


def keys(block: Block) -> list[str]:
    """Return the possible keys of a block in the table, the most specific first."""
    of_page = table(block.page)
    beginnings = sorted((key for key in of_page if block.text.startswith(key)), key=len)
    return [*reversed(beginnings), *reversed(block.titles), "*"]


def table(page: str) -> dict[str, str]:
    """Return what the table says about a page."""
    [found] = [told for name, told in TYPED.items() if fnmatch.fnmatch(page, name)] or [{}]
    return found


def key(block: Block) -> str | None:
    """Return the key of a block in the table."""
    return next((key for key in keys(block) if key in table(block.page)), None)


def told(block: Block) -> str | None:
    """Return what the table says about a block."""
    found = key(block)
    return None if found is None else table(block.page)[found]


ALL = [block for page in pages() for block in blocks(page)]
