"""ACL CHECK: a program that serves people tries their passwords for them."""

from collections.abc import Callable

import hiredis
import pytest

from disque_bananaq.settings import BananaSettings
from disque_trio.config.config import Config
from disque_trio.config.params import Table
from disque_trio.respserver.monitor import without_password
from tests.support.node_bench import Bench


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """A node that allows three wrong passwords a minute, with the users boss and off."""
    bench = make_bench()
    bench.node.users.logins.limit = 3
    bench.host.ip = lambda client: f"10.0.0.{client.id}"  # type: ignore[method-assign]
    bench("ACL", "SETUSER", "boss", "on", ">right", "~*", "+@all")
    bench("ACL", "SETUSER", "off", "off", ">right")
    return bench


def guess(bench: Bench, origin: str, count: int, user: str = "ghost") -> list[str]:
    """The first words of the replies to wrong passwords tried from ``origin``."""
    replies = [bench("ACL", "CHECK", origin, user, f"wrong {i}") for i in range(count)]
    return [str(reply).partition(" ")[0] for reply in replies]


def test_it_says_whether_somebody_may_log_in(bench: Bench) -> None:
    assert bench("ACL", "CHECK", "192.0.2.1", "boss", "right") == 1
    assert bench("ACL", "WHOAMI") == b"default"
    for i, user in enumerate(("boss", "off", "ghost", "")):
        password = "wrong" if user == "boss" else "right"
        assert bench("ACL", "CHECK", f"192.0.2.{i}", user, password) == 0


def test_wrong_passwords_count_for_their_origin_not_for_who_asks(bench: Bench) -> None:
    assert guess(bench, "192.0.2.9", 5) == ["0"] * 3 + ["TRYAGAIN"] * 2
    assert bench.error("ACL", "CHECK", "192.0.2.9", "boss", "right").startswith("TRYAGAIN")
    assert bench("ACL", "CHECK", "192.0.2.1", "boss", "right") == 1
    assert bench("AUTH", "boss", "right") == b"OK"
    bench.now += 20_000
    assert bench("ACL", "CHECK", "192.0.2.9", "boss", "right") == 1


def test_the_origin_s_own_logins_count_with_those_that_are_checked_for_it(bench: Bench) -> None:
    assert guess(bench, "10.0.0.2", 3) == ["0"] * 3
    stranger = bench.client()
    assert stranger.id == 2
    reply = bench.ask(stranger, "AUTH", "boss", "right")
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply).startswith("TRYAGAIN")


def test_who_has_logged_in_from_an_origin_is_not_locked_out_by_guesses_of_other_names(
    bench: Bench,
) -> None:
    assert bench("ACL", "CHECK", "192.0.2.1", "boss", "right") == 1
    assert guess(bench, "192.0.2.1", 5)[-1] == "TRYAGAIN"
    assert bench("ACL", "CHECK", "192.0.2.1", "boss", "right") == 1
    assert guess(bench, "192.0.2.1", 5, "boss") == ["0"] * 3 + ["TRYAGAIN"] * 2


@pytest.mark.parametrize("origin", ["", "a b", "a\n", "ä", "x" * 129])
def test_an_origin_is_a_word(bench: Bench, origin: str) -> None:
    assert bench.error("ACL", "CHECK", origin, "boss", "right").startswith("ERR the origin")


def test_other_text_than_an_address_is_an_origin_too(bench: Bench) -> None:
    assert guess(bench, "192.0.2.1/Zx3", 4)[-1] == "TRYAGAIN"
    assert bench("ACL", "CHECK", "192.0.2.1", "boss", "right") == 1


def test_acl_log_has_the_origin(bench: Bench) -> None:
    guess(bench, "192.0.2.9", 4)
    entries = bench("ACL", "LOG")
    seen = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in entries]
    assert [(entry[b"reason"], entry[b"object"], entry[b"username"]) for entry in seen] == [
        (b"auth-limit", b"192.0.2.9", b"ghost"),
        (b"auth", b"192.0.2.9", b"ghost"),
    ]


def test_only_users_with_the_right_may_check(bench: Bench) -> None:
    bench("ACL", "SETUSER", "plain", "on", ">p", "~*", "+@all", "-@admin")
    bench("ACL", "SETUSER", "console", "on", ">p", "-@all", "+acl|check")
    client = bench.client()
    bench.ask(client, "AUTH", "plain", "p")
    refused = bench.ask(client, "ACL", "CHECK", "192.0.2.1", "boss", "right")
    assert str(refused).startswith("NOPERM")
    bench.ask(client, "AUTH", "console", "p")
    assert bench.ask(client, "ACL", "CHECK", "192.0.2.1", "boss", "right") == 1


def shown(bench: Bench, args: list[bytes]) -> list[bytes]:
    """What MONITOR and SLOWLOG show of ``args``."""
    commands = bench.node.commands
    return without_password(commands[args[0].lower()], args, commands)


def test_monitor_and_slowlog_do_not_show_the_password(bench: Bench) -> None:
    args = [b"ACL", b"Check", b"192.0.2.1", b"boss", b"hush", b"hush"]
    assert shown(bench, args) == [*args[:4], b"(redacted)", b"(redacted)"]


@pytest.mark.parametrize(
    "text",
    [
        "ACL DRYRUN boss AUTH hush",
        "ACL DRYRUN boss ACL SETUSER sales >hush",
        "ACL DRYRUN boss config set requirepass hush",
        "COMMAND GETKEYS ACL DRYRUN boss AUTH hush",
        "COMMAND GETKEYSANDFLAGS AUTH hush",
    ],
)
def test_monitor_does_not_show_the_passwords_of_a_request_that_another_one_is_about(
    bench: Bench, text: str
) -> None:
    args = text.encode().split()
    assert shown(bench, args) == [*args[:-1], b"(redacted)"]


def test_monitor_shows_everything_else_of_such_a_request(bench: Bench) -> None:
    for text in ("ACL DRYRUN boss GETJOB FROM mail", "ACL DRYRUN", "COMMAND GETKEYS NONE a"):
        assert shown(bench, text.encode().split()) == text.encode().split()
    long = [b"COMMAND", b"GETKEYS"] * 10_000
    assert shown(bench, long) == long


@pytest.mark.parametrize("table", [Config.table, BananaSettings.table])
def test_monitor_does_not_show_secret_settings(bench: Bench, table: Table) -> None:
    for name in [param.name.encode() for param in table.values() if param.secret]:
        args = [b"CONFIG", b"SET", b"loglevel", b"notice", name.upper(), b"hush"]
        assert shown(bench, args) == [*args[:5], b"(redacted)"]
