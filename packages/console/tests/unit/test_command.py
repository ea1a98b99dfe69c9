"""The command line of ``disque-console``: what it says if it cannot start."""

import re
from pathlib import Path

import pytest

from disque_console.command import main
from tests.support.harness import free_port


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--listen", "127.0.0.1:99999"),
        ("--listen", "127.0.0.1:-1"),
        ("--listen", "127.0.0.1:abc"),
        ("--listen", "127.0.0.1"),
        ("--listen", "0.0.0.0:8711"),
        ("--prefix", "disque"),
        ("--password-file", "none"),
    ],
)
def test_a_wrong_argument_is_named(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([option, value])
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"disque-console: {option} {value}: ")


@pytest.mark.parametrize(
    "arguments",
    [
        "--certificate none",
        "--certificate console.pem --certificate-key none",
        "--users none",
        "--audit-log no/such/log",
        "--secret-file no/such/secret",
        "--secret-file short",
        "--events none",
        "--events short",
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("short").write_text("secret")
    listen = ["--listen", f"127.0.0.1:{free_port()}"]
    assert main(["--nodes", f"127.0.0.1:{free_port()}", *listen, *arguments.split()]) == 1
    said = capsys.readouterr().err
    assert re.fullmatch(rf"disque-console: {re.escape(arguments)}: (?!\[Errno).+\n", said)
