"""What nodes are asked before Spark starts."""

from io import BytesIO
from pathlib import Path

import pytest

from disque_spark.cli.arguments import parser
from disque_spark.cli.checks import UsageError, check_archive, check_nodes
from disque_spark.client import WireError
from disque_spark.leases.queue import QueuePlace
from disque_trio.respclient.login import Login
from tests.support.harness import free_port
from tests.support.scripted_node import Answer, ScriptedNode

HELLO = b"*2\r\n:1\r\n$40\r\n" + b"a" * 40 + b"\r\n"


def answers(error: str) -> Answer:
    """Return an answer that is always this error."""
    return lambda request: f"-{error}\r\n".encode()


def archive(table: Path, *words: str) -> str | None:
    """Return the result of the check of the command with these arguments."""
    arguments = ["archive", "--queue", "q", "--output", str(table), *words]
    return check_archive(parser().parse_args(arguments))


@pytest.mark.parametrize(
    "error",
    [
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair",
        "NOPERM this user has no permissions",
        "ERR invalid password",
    ],
)
def test_a_password_that_a_node_refuses_is_a_wrong_argument(error: str) -> None:
    code = error.split(" ", 1)[0]
    with ScriptedNode(answers(error)) as node, pytest.raises(UsageError, match=code):
        check_nodes([node.address], Login(password="wrong"))


def test_a_node_that_is_loading_does_not_answer_yet() -> None:
    with ScriptedNode(answers("LOADING a file")) as node, pytest.raises(WireError):
        check_nodes([node.address], Login())


def test_an_archive_without_end_may_begin_before_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    said = archive(tmp_path, "--nodes", nobody)
    assert nobody in str(said)
    with ScriptedNode(answers("LOADING a file")) as node:
        said = archive(tmp_path, "--nodes", node.address)
        assert "LOADING" in str(said)
    monkeypatch.setattr(QueuePlace, "open", lambda place: BytesIO())
    with ScriptedNode(lambda request: HELLO) as node:
        assert archive(tmp_path, "--nodes", node.address) is None


def test_an_archive_of_what_is_queued_now_needs_a_node_now(tmp_path: Path) -> None:
    with pytest.raises(WireError):
        archive(tmp_path, "--nodes", f"127.0.0.1:{free_port()}", "--available-now")


def test_an_archive_without_end_does_not_wait_for_another_password(tmp_path: Path) -> None:
    with ScriptedNode(answers("NOAUTH required")) as node, pytest.raises(UsageError):
        archive(tmp_path, "--nodes", node.address)


@pytest.mark.parametrize(
    "words",
    [
        ["audit", "", "--output", "x"],
        ["audit", "x", "--output", ""],
        ["audit", "x", "--output", "x", "--aof", "x", ""],
        ["report", ""],
        ["watch", "x", "--output", "x", "--html", ""],
        ["archive", "--queue", "q", "--output", ""],
        ["replay", "--archive", ""],
        ["compact", ""],
    ],
)
def test_a_path_that_is_empty_is_not_this_directory(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(words)
    assert ended.value.code == 2
    assert "expected a path" in capsys.readouterr().err


def test_replay_takes_several_files(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in "abc"]
    options = parser().parse_args(["replay", "--aof", *names[:2], "--aof", names[2]])
    assert list(map(str, options.aof)) == names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["audit", "x", "--output", "x", "--setled", "5"], "did you mean --settled?"),
        (["archive", "--queue", "q", "--output", "x", "--avalable-now"], "--available-now?"),
        (["report", "x", "y"], "no such argument: y"),
    ],
)
def test_an_argument_that_a_command_does_not_have_is_named_and_the_nearest_one(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(words)
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line
    assert line.endswith(f"(see disque-pipeline {words[0]} --help)")
