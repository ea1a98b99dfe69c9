"""Checks the project's English with proselint: ``python -m tools.english [PATH...]``.

tools/english.yaml lists phrases that a native speaker would not write. They are searched for in
documentation, docstrings, comments, messages and names. Some of proselint's own checks apply to the
prose in Markdown files.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from proselint.checks import __register__ as OF_PROSELINT
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, CheckFlags
from proselint.registry.checks.engine import Fast
from proselint.registry.checks.types import ExistenceSimple
from proselint.tools import LintFile

LIST = Path(__file__).resolve().with_suffix(".yaml")
SUFFIXES = {
    *(".conf", ".css", ".html", ".js", ".md", ".py", ".service", ".sh", ".socket", ".timer"),
    *(".yaml", ".yml"),
}
OWN = "own"

_CODE = re.compile(
    r"^(?P<fence>```+).*?^(?P=fence)$"  # a fenced block
    r"|^ {4}[^\n]*$"  # an indented one
    r"|`[^`\n]+`"
    r"|\]\([^)\n]*\)",  # the target of a link
    re.MULTILINE | re.DOTALL,
)


def prose(markdown: str) -> str:
    """``markdown`` with code and link targets blanked out; the rest keeps its lines and columns."""
    return _CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), markdown)


def pattern(phrase: str) -> str:
    """Finds a phrase: a regular expression in which a space matches any white space, so that a
    phrase is also found across two lines of a comment."""
    return r"\b(?:" + phrase.replace(" ", r"[\s#]+") + r")\b"


def phrase_check(phrase: str, better: str) -> Check:
    """A check for a phrase."""
    found = ExistenceSimple(pattern(phrase))
    return Check(found, path=OWN, message=f"'{{}}': {better}", flags=CheckFlags(allow_quotes=True))


@cache
def load() -> tuple[tuple[str, ...], str]:
    """Registers all checks with proselint; returns the names of its enabled built-in ones, and an
    expression that finds any phrase: a file is searched for it in an instant."""
    listed: dict[str, Any] = yaml.safe_load(LIST.read_text())
    registry = CheckRegistry()
    registry.register_many(OF_PROSELINT)
    registry.register_many(tuple(phrase_check(*item) for item in listed["phrases"].items()))
    return tuple(listed["proselint"]), "|".join(map(pattern, listed["phrases"]))


def complaints(path: Path, text: str) -> Iterator[str]:
    """The problems in a file's text, as ``path:line:column: problem``."""
    of_proselint, any_phrase = load()
    names: tuple[str, ...] = ()
    if path.suffix == ".md":
        names = of_proselint
        text = prose(text)
    if Fast().exists_in(any_phrase, text):
        names = (OWN, *names)
    if not names:
        return
    checks = dict.fromkeys(names, True)
    for found in LintFile(path, text).lint({"max_errors": 1000, "checks": checks}):
        line, column = found.pos
        yield f"{path}:{line}:{column}: {' '.join(found.check_result.message.split())}"


def main(paths: Sequence[str]) -> int:
    """Check files, by default all that git tracks; returns 1 if there are problems."""
    if not paths:
        listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
        paths = listed.stdout.splitlines()
    found = map(Path, paths)
    files = [path for path in found if path.suffix in SUFFIXES and path.resolve() != LIST]
    status = 0
    for path in files:
        for line in complaints(path, path.read_text(errors="replace")):
            print(line)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
