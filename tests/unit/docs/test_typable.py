"""Everything that pages ask readers to type exists: commands, their options, make targets, modules
and imports. This is checked without running it; ``test_typed.py`` says what is run."""

import ast
import importlib
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from disque_integrations.django.framework import task_backends
from tests.support import ROOT
from tests.support.doc_blocks import ALL, Block, is_python, is_typed, pages, told
from tools.manuals.described import Command, commands

FRAMEWORK = type(task_backends).__module__  # django.tasks, or django_tasks
OWN = {command.name: command for command in commands()}
# From the shell, from Debian, and from what a page has installed before.
_OTHERS = """
. : cat cd chmod comm cp curl cut date df du echo exec exit export find grep head install jq kill ls
mkdir mv openssl pgrep printf read rm sed seq sleep sort tail test timeout touch trap tr true umask
uniq useradd wait wc xargs zcat [
apt-get bash cc docker git go helm kubectl make node npm php pip podman promtool python python3
journalctl redis-cli ruby sudo systemctl
celery django-admin dramatiq flask spark-submit start-connect-server.sh uvicorn venv-pack
"""
OTHERS = set(_OTHERS.split())
# Pages that name only options of our commands; others also name those of tools.bench and of Spark.
_ABOUT_COMMANDS = """
backup bananaq bananaq-configuration certificates check-aof cli cluster console durability errors
kubernetes logs monitoring nodes operations outbox packages pressure symptoms systemd upgrading
worker
"""
ABOUT_COMMANDS = {page for page in pages() if Path(page).stem in _ABOUT_COMMANDS.split()}
KEYWORDS = {*"!{}", "do", "done", "then", "else", "fi", "while", "until", "if", "exec", "sudo"}
SIMPLE = re.compile(r"[;&|()\n]+")


def simple_commands(block: Block) -> list[list[str]]:
    """Return the words of each command in a block for a shell, without keywords and
    redirections."""
    text = re.sub(r"(^|\s)#\s.*$", "", "\n".join(block.lines()), flags=re.MULTILINE)
    text = re.sub(r"\$\(\(.*?\)\)", "0", text)
    while within := re.search(r"\$\(([^()]*)\)", text):
        text = f"{text[: within.start()]}_{text[within.end() :]}\n{within[1]}"
    words = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>\n")
    words.whitespace, words.whitespace_split, words.commenters = " \t", True, ""
    found: list[list[str]] = [[]]
    last = ""
    for word in words:
        if SIMPLE.fullmatch(word):
            found.append([])
        elif not set(word) <= set("<>&") and not set(last) & set("<>"):
            starts = not found[-1]
            if not (starts and (word in KEYWORDS or re.match(r"\w+=", word))):
                found[-1].append(word)
        last = word
    return [words for words in found if words and words[0] != "for"]


SHELL = [
    block
    for block in ALL
    if is_typed(block)
    and block.language in ("", "console", "sh")
    and not is_python(block)
    and not block.text.startswith("> ")
    and told(block) not in ("part", "usage", "shown")
]


def test_commands_are_those_of_the_project_or_of_debian() -> None:
    found = set()
    for block in SHELL:
        functions = set(re.findall(r"(\w+)\(\)", (ROOT / block.page).read_text()))
        for first, *_ in simple_commands(block):
            name = first.rsplit("/", 1)[-1]
            if name not in {*OWN, *OTHERS, *functions} and not re.match(r"[$.]|\[\w", first):
                found.add(f"{block.page}:{block.line}: {first}")
    assert found == set()


def test_our_commands_have_the_options_that_are_typed() -> None:
    count = 0
    found = set()
    for block in ALL:
        if block not in SHELL and told(block) != "usage":
            continue
        for first, *words in simple_commands(block):
            command = OWN.get(first.rsplit("/", 1)[-1])
            if command is None:
                continue
            count += 1
            found |= {f"{block.page}:{block.line}: {word}" for word in unknown(command, words)}
    assert count > 100
    assert found == set()


def options(command: Command) -> set[str]:
    """Return all options of a command and its subcommands."""
    own = {name for option in command.options for name in option.names}
    return own.union(*map(options, command.commands))


def unknown(command: Command, words: list[str]) -> set[str]:
    """Return the options among ``words`` that a command does not have."""
    named = {one: one.name.split()[1:] for one in command.commands}
    meant = [one for one, names in named.items() if names and set(names) <= set(words)]
    most = max((len(named[one]) for one in meant), default=0)
    meant = [one for one in meant if len(named[one]) == most] or list(command.commands)
    known = {name for option in command.options for name in option.names}
    known = known.union(*map(options, meant))
    typed = {found for word in words for found in re.findall(r"^\[?\(?(--?[a-z][\w-]*)", word)}
    return {name for name in typed if name not in known}


def test_options_within_sentences_are_those_of_our_commands() -> None:
    every = {word for command in OWN.values() for word in options(command)}
    named: set[tuple[str, str]] = set()
    found = set()
    for page in pages():
        text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        for span in re.findall(r"`([^`\n]+)`", text):
            first, *words = span.split()
            if first in OWN:
                found |= {(page, word) for word in unknown(OWN[first], words)}
            elif option := re.match(r"--?[a-z][\w-]*", first):
                named.add((page, option[0]))
    named = {(page, option) for page, option in named if page in ABOUT_COMMANDS}
    assert len(named) > 100
    assert found | {(page, option) for page, option in named if option not in every} == set()


def test_targets_of_make_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set()
    for page in pages():
        text = (ROOT / page).read_text()
        named |= {
            (page, name)
            for name in re.findall(r"(?:`|^    (?:\$ )?)make ([a-z][a-z-]*)", text, re.M)
        }
    assert len(named) > 30
    assert {(page, name) for page, name in named if name not in targets} == set()


def test_modules_that_are_run_are_there() -> None:
    named = {
        (page, name)
        for page in pages()
        for name in re.findall(r"python3? -m ([a-z]\w+(?:\.\w+)*)", (ROOT / page).read_text())
    }
    assert len(named) > 10
    assert {(page, name) for page, name in named if importlib.util.find_spec(name) is None} == set()


PYTHON = [block for block in ALL if is_python(block)]

COMPARED = "taskiq"
"""A package that a page shows beside ours, and that nothing here needs."""


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_programs_compile_and_what_they_import_is_there(block: Block) -> None:
    tree = compile(
        block.text, block.page, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            for imported in statement.names:
                importlib.import_module(imported.name)
        elif isinstance(statement, ast.ImportFrom):
            if statement.module is not None and statement.module.startswith(COMPARED):
                pytest.importorskip(COMPARED)
            name = (statement.module or "").replace("django.tasks", FRAMEWORK)
            module = importlib.import_module(name)
            for imported in statement.names:
                if not hasattr(module, imported.name):
                    importlib.import_module(f"{statement.module}.{imported.name}")
