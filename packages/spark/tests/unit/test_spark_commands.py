"""The commands and programs on the pages about Spark exist. Those that need no other machine are
run by packages/spark/tests/live/test_docs.py."""

import argparse
import ast
import importlib
import re
import shlex
import textwrap

import pytest

from disque_spark.cli.arguments import parser
from packages.spark.tests.support import HOME

PAGES = {page.name: page.read_text() for page in sorted((HOME / "docs").glob("*.md"))}
USAGE = re.compile(r"\.\.\.|\[--|\(--")


def commands() -> list[tuple[str, str]]:
    """Return page and arguments of each disque-pipeline in a block of code."""
    found = []
    for name, text in PAGES.items():
        for line in re.findall(r"^    .*\bdisque-pipeline (\w.*)$", text, re.MULTILINE):
            line = re.sub(r" [&>|].*$", "", line)
            found.append((name, line[:-1] if line.count('"') % 2 else line))
    return found


def options(command: str) -> set[str]:
    (commands,) = (
        action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    return set(commands.choices[command]._option_string_actions)


def test_commands_can_be_typed_as_they_stand() -> None:
    typed = [line for _, line in commands() if not USAGE.search(line)]
    assert len(typed) > 15
    for line in typed:
        parser().parse_args(shlex.split(line))  # or it exits with a usage message


def test_usages_have_options_that_there_are() -> None:
    usages = [line for _, line in commands() if USAGE.search(line)]
    assert len(usages) >= 4
    for line in usages:
        named = set(re.findall(r"--[a-z-]+", line))
        assert named <= options(line.split()[0]), line


@pytest.mark.parametrize("name", PAGES)
def test_programs_compile_and_what_they_import_is_there(name: str) -> None:
    fenced = re.findall(r"^```python\n(.*?)^```", PAGES[name], re.MULTILINE | re.DOTALL)
    indented = re.findall(r"(?:^    .*\n)+", PAGES[name], re.MULTILINE)
    programs = [textwrap.dedent(text) for text in indented]
    for program in [*fenced, *(text for text in programs if re.match(r"(from|import) ", text))]:
        for statement in ast.walk(ast.parse(program)):
            if isinstance(statement, ast.Import):
                for imported in statement.names:
                    importlib.import_module(imported.name)
            elif isinstance(statement, ast.ImportFrom):
                module = importlib.import_module(statement.module or "")
                assert all(hasattr(module, imported.name) for imported in statement.names)
