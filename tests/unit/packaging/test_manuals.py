"""Man pages and completions of every command, with all its options."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from disque_trio.config import TABLE
from tools.manuals.__main__ import main
from tools.manuals.described import Command, commands
from tools.workspace import distributions

SCRIPTS = {name: call for house in distributions() for name, call in house.scripts.items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("manuals")
    main(directory)
    return directory / "share"


@pytest.fixture(scope="module")
def described() -> dict[str, Command]:
    return {command.name: command for command in commands()}


def test_every_command_has_a_page_and_completions(made: Path) -> None:
    pages = {path.stem for path in made.glob("man/man*/*")}
    assert pages == set(SCRIPTS)
    assert {path.name for path in made.glob("bash-completion/completions/*")} == set(SCRIPTS)
    assert {path.name[1:] for path in made.glob("zsh/vendor-completions/*")} == set(SCRIPTS)
    assert {path.stem for path in made.glob("fish/vendor_completions.d/*")} == set(SCRIPTS)


def test_each_page_names_the_other_commands(made: Path) -> None:
    for page in made.glob("man/man*/*"):
        named = page.read_text().rpartition(".SH SEE ALSO")[2].replace("\\-", "-")
        assert set(re.findall(r"\\fB(.*?)\\fR", named)) == {*SCRIPTS} - {page.stem}


# The usage text of disque-server leaves out the settings, which the next test looks for.
@pytest.mark.parametrize("name", sorted({*SCRIPTS} - {"disque-server"}))
def test_a_page_has_each_option_that_help_has(
    made: Path, described: dict[str, Command], name: str
) -> None:
    module, _, function = SCRIPTS[name].partition(":")
    code = f"from {module} import {function}; {function}()"
    printed = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True
    ).stdout
    (page,) = made.glob(f"man/man*/{name}.*")
    text = page.read_text().replace("\\-", "-")
    offered = set(re.findall(r"^  (--?[a-z0-9][a-z0-9-]*)", printed, re.MULTILINE))
    assert offered
    assert offered <= {name for option in described[name].options for name in option.names}
    assert all(f"\\fB{option}\\fR" in text for option in offered)


def test_the_page_of_the_node_has_all_settings(described: dict[str, Command]) -> None:
    names = {name for option in described["disque-server"].options for name in option.names}
    assert {f"--{name}" for name in TABLE} <= names


def test_no_line_of_a_page_is_taken_for_a_macro_that_it_is_not(made: Path) -> None:
    macros = {"TH", "SH", "SS", "TP", "PP", "HP", "nf", "fi", "nh", "hy"}
    for page in made.glob("man/man*/*"):
        for line in page.read_text().splitlines():
            assert not line.startswith("'")
            if line.startswith("."):
                assert line[1:].split()[0] in macros, (page.name, line)


def test_pages_are_what_man_accepts(made: Path) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed")
    pages = [str(page) for page in sorted(made.glob("man/man*/*"))]
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", *pages],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stdout.splitlines() if "missing date" not in line] == []


# The typed words, and some of the completions offered.
TYPED = [
    ("pressure", "", {"put", "get", "doctor"}),
    ("pressure", "p", {"put", "pipe"}),
    ("pressure", "put --clo", {"--close"}),
    ("pressure", "doctor --free ", {"producer", "consumer"}),
    ("disque-worker", "--log-level ", {"debug", "verbose", "notice", "warning"}),
    ("disque-server", "--appendonly ", {"yes", "no"}),
    ("disque-server", "--appendf", {"--appendfsync", "--appendfilename"}),
    ("bananaq", "--sto", {"--store"}),
    ("disque", "getj", {"getjob"}),
    ("disque-pipeline", "arch", {"archive"}),
    ("disque-check-aof", "--sal", {"--salvage"}),
]


@pytest.mark.parametrize(("command", "typed", "wanted"), TYPED)
def test_bash_offers_it(made: Path, command: str, typed: str, wanted: set[str]) -> None:
    script = made / "bash-completion/completions" / command
    words = [command, *typed.split(" ")]
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"""
set -eu
. {script}
COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}
_shtab_{command.replace("-", "_")}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, check=True, env={"PATH": os.defpath}
    )
    offered = set(done.stdout.split())
    assert wanted <= offered
    assert all(word.startswith(words[-1]) for word in offered)


@pytest.mark.parametrize(
    ("command", "typed", "files"),
    [
        ("disque", "disque -p ''", False),
        ("disque", "disque --cert ''", True),
        ("disque-server", "disque-server --maxclients ''", False),
        ("disque-server", "disque-server --dir ''", True),
        ("pressure", "pressure put --timeout ''", False),
        ("pressure", "pressure put --cert ''", True),
    ],
)
def test_bash_offers_files_only_for_values_that_are_files(
    made: Path, tmp_path: Path, command: str, typed: str, files: bool
) -> None:
    (tmp_path / "it.crt").touch()
    script = made / "bash-completion/completions" / command
    code = f". {script}; compopt() {{ :; }}; COMP_WORDS=({typed})"
    code += f"; COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _shtab_{command.replace('-', '_')}"
    code += "; echo ${COMPREPLY[@]}; complete -p"
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    offered, registered = done.stdout.splitlines()
    assert offered == ("it.crt" if files else "")
    assert "default" not in registered.replace("-o bashdefault", "")  # no files without being asked


def test_bash_offers_no_second_command(made: Path) -> None:
    script = made / "bash-completion/completions/disque"
    code = f". {script}; COMP_WORDS=(disque cluster ''); COMP_CWORD=2; _shtab_disque"
    code += "; echo ${#COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


@pytest.mark.parametrize("command", ["pressure", "disque-server"])
def test_zsh_and_fish_offer_files_only_for_values_that_are_files(made: Path, command: str) -> None:
    file, number = ("cert", "port") if command == "pressure" else ("aclfile", "port")
    zsh = (made / "zsh/vendor-completions" / f"_{command}").read_text()
    assert re.search(rf'"--{number}\[.*\]:{number}:"', zsh)
    assert re.search(rf'"--{file}\[.*\]:{file}:_files"', zsh)
    fish = (made / "fish/vendor_completions.d" / f"{command}.fish").read_text()
    lines = fish.splitlines()
    (of_number, of_file) = (
        next(line for line in lines if f" -l {name} " in line) for name in (number, file)
    )
    assert "__fish_complete_path" not in of_number
    assert "__fish_complete_path" in of_file


@pytest.mark.parametrize(("command", "typed", "wanted"), TYPED)
def test_fish_offers_it(
    made: Path, tmp_path: Path, command: str, typed: str, wanted: set[str]
) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = made / "fish/vendor_completions.d" / f"{command}.fish"
    code = f"source {script}; complete -C '{command} {typed}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    assert wanted <= {line.partition("\t")[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [("pressure put --clo", "--close"), ("disque getj", "getjob"), ("pressure doc", "doctor")],
)
def test_zsh_completes_it(made: Path, tmp_path: Path, typed: str, wanted: str) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    start = (
        f"PS1=; fpath=({made}/zsh/vendor-completions $fpath); autoload -U compinit; compinit -u -D"
    )
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "dumb"},
    )
    try:
        os.write(ours, f"{start}; print be''gun\n".encode())
        _read_until(ours, b"begun")
        os.write(ours, f"{typed}\t".encode())
        _read_until(ours, wanted.encode())
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
        os.close(theirs)


def _read_until(descriptor: int, text: bytes, seconds: float = 20) -> None:
    seen, end = b"", time.monotonic() + seconds
    while text not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0, end - time.monotonic()))
        assert ready, seen
        seen += os.read(descriptor, 4096)
