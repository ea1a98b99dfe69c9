"""Nobody locks out a user, or the programs of the console's host, by guessing passwords."""

from pathlib import Path

from packages.console.tests.live.conftest import PASSWORD
from packages.console.tests.support.console import ConsoleProcess, console
from tests.support.harness import NodeFactory, wait_until

GUESSES = 12  # more than an address, a user or a node allows in a minute


def enter(
    found: ConsoleProcess, address: str, user: str, password: str = PASSWORD, browser: str = ""
) -> tuple[int, dict[str, str]]:
    """Log in through the trusted proxy; returns the status and the cookies."""
    visitor = found.visitor(**{"X-Forwarded-For": address})
    if browser:
        visitor.cookies["disque_console_browser"] = browser
    answer = visitor.post("/login", {"user": user, "password": password, "next": "/"})
    return answer.status, visitor.cookies


def guess(found: ConsoleProcess, address: str, user: str) -> int:
    """Guess; returns the last status."""
    return [enter(found, address, user, f"wrong {i}")[0] for i in range(GUESSES)][-1]


def test_with_the_users_of_the_cluster(disque_server: NodeFactory, tmp_path: Path) -> None:
    node = disque_server()
    admin = node.wire()
    admin("ACL", "SETUSER", "boss", "on", f">{PASSWORD}", "~*", "+@all")
    admin("ACL", "SETUSER", "worker", "on", ">wpw", "~*", "+getjob")
    rules = ("~*", "+@read", "+info", "+cluster|nodes", "+acl|check")
    admin("ACL", "SETUSER", "console", "on", ">cpw", *rules)
    admin("ACL", "SETUSER", "default", "off")
    secret = tmp_path / "cpw"
    secret.write_text("cpw\n")
    options = ["--user", "console", "--password-file", str(secret)]
    options += ["--acl", "--trusted-proxy", "127.0.0.1"]
    with console(tmp_path, [node.port], *options) as found:
        wait_until(lambda: enter(found, "192.0.2.1", "boss")[0] == 303)
        for user in ("ghost", "boss", "worker"):
            assert guess(found, "192.0.2.66", user) == 429
        for _ in range(3):  # a right one each time: nothing is used up
            assert enter(found, "192.0.2.1", "boss")[0] == 303
            assert enter(found, "192.0.2.2", "boss")[0] == 303
        wire = node.wire()
        assert wire("AUTH", "worker", "wpw") == b"OK"
        origins = [entry for entry in _log(admin) if entry[b"reason"] == b"auth"]
        assert {entry[b"object"] for entry in origins} == {b"192.0.2.66"}


def test_with_a_file_of_users(disque_server: NodeFactory, users: Path, tmp_path: Path) -> None:
    node = disque_server()
    options = ["--users", str(users), "--trusted-proxy", "127.0.0.1"]
    options += ["--secret-file", str(tmp_path / "secret")]
    with console(tmp_path, [node.port], *options) as found:
        status, cookies = enter(found, "192.0.2.1", "admin")
        assert status == 303
        browser = cookies["disque_console_browser"]
        assert guess(found, "192.0.2.66", "admin") == 429
        assert guess(found, "192.0.2.67", "admin") == 429
        assert enter(found, "192.0.2.1", "admin")[0] == 303
        assert enter(found, "192.0.2.2", "admin")[0] == 303
    with console(tmp_path, [node.port], *options) as found:  # which knows no address any more
        assert guess(found, "192.0.2.1", "admin") == 429
        assert enter(found, "192.0.2.1", "admin")[0] == 429
        assert enter(found, "192.0.2.1", "admin", browser=browser)[0] == 303


def _log(admin: object) -> list[dict[bytes, object]]:
    """The entries of ACL LOG."""
    entries = admin("ACL", "LOG", 1000)  # type: ignore[operator]
    return [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in entries]
