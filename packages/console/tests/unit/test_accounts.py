"""Users in a file, whose sessions end when they are removed, and users of the cluster."""

from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from disque_console.io import accounts
from disque_console.io.accounts import (
    LOOK_AGAIN,
    AccountsAway,
    AclAccounts,
    FileAccounts,
    TooManyWrong,
)
from disque_console.io.calls import Answer, Calls
from disque_console.model.passwords import NOBODY, hash_password
from disque_console.model.roles import Role
from disque_console.model.sessions import Sessions
from disque_trio.overview.nodes import Nodes
from disque_trio.process.logs import Log, Logging
from disque_trio.respclient.errors import (
    AuthError,
    ConnectionLost,
    DisqueError,
    NoPermError,
    ReplyError,
)
from disque_trio.respclient.login import Login


@pytest.mark.parametrize("line", ["ann:operator:" + NOBODY, "bob:operator:" + NOBODY, ""])
async def test_a_session_ends_with_its_user_or_the_password(tmp_path: Path, line: str) -> None:
    users = tmp_path / "users"
    hash = hash_password("s3cret")
    users.write_text(f"ann:operator:{hash}\n")
    log = cast("Log", Logging("warning", "json").log)
    async with trio.open_nursery() as nursery:
        accounts = FileAccounts(str(users), Calls(nursery, Nodes(), Login()), log)
        assert await accounts.role("ann", "s3cret", "1.2.3.4") is Role.OPERATOR
        session, _ = Sessions(b"s" * 32).begin("ann", Role.OPERATOR, 0.0, accounts.mark("ann"))
        assert accounts.still(session) is Role.OPERATOR
        _replace(users, f"ann:viewer:{hash}")
        assert accounts.still(session) is Role.VIEWER
        _replace(users, line)
        assert accounts.still(session) is None


LOG = cast("Log", Logging("warning", "json").log)


class Node:
    """A node with the users ``default`` and ``ann``.

    Attributes:
        passwords: None if any password is right.
        checks: what ACL CHECK answers to the console's own user; None: whether it is right.
        checked: where passwords came from. logins: how many there were, other than ACL CHECK.
    """

    def __init__(self, **passwords: str | None) -> None:
        self.passwords = passwords
        self.closed = 0
        self.checks: DisqueError | None = None
        self.checked: list[str] = []
        self.logins = 0

    def own(self) -> Calls:
        """Sends commands as the console's own user."""
        return cast("Calls", _OwnCalls(self))

    def is_right(self, user: str, password: str | None) -> bool:
        return self.passwords[user] in (None, password)

    def calls(self, nursery: object, nodes: object, login: Login) -> Calls:
        return cast("Calls", _NodeCalls(self, login))


class _OwnCalls:
    def __init__(self, node: Node) -> None:
        self._node = node

    async def any(self, acl: str, check: str, origin: str, user: str, password: str) -> Answer:
        assert (acl, check) == ("ACL", "CHECK")
        self._node.checked.append(origin)
        return "n0:1", self._node.checks or int(self._node.is_right(user, password))


class _NodeCalls:
    def __init__(self, node: Node, login: Login) -> None:
        self._node = node
        self._login = login

    async def any(self, *command: str) -> Answer:
        self._node.logins += 1
        if not self._node.is_right(self._login.username or "default", self._login.password):
            return "n0:1", AuthError("WRONGPASS", "no")
        if self._login.username == "ann" and command[0] == "CONFIG":
            return "n0:1", NoPermError("NOPERM", "no")
        return "n0:1", b"OK"

    def close(self) -> None:
        self._node.closed += 1


async def test_the_default_user_of_a_cluster_needs_a_password(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    node = Node(default=None, ann="secret")
    monkeypatch.setattr(accounts, "Calls", node.calls)
    users = AclAccounts(nursery, Nodes(), node.own(), None, LOG)
    for password in ("", "x"):
        with pytest.raises(AccountsAway):
            await users.role("default", password, "1.2.3.4")
    assert await users.role("ann", "x", "1.2.3.4") is None
    assert await users.role("ann", "secret", "1.2.3.4") is Role.OPERATOR
    node.passwords["default"] = "secret"
    assert await users.role("default", "x", "1.2.3.4") is None
    assert await users.role("default", "secret", "1.2.3.4") is Role.ADMIN


async def test_another_login_ends_the_oldest_session_of_a_user_with_many(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    node = Node(default="secret", ann="secret")
    monkeypatch.setattr(accounts, "Calls", node.calls)
    users = AclAccounts(nursery, Nodes(), node.own(), None, LOG)
    sessions = [Sessions(b"s" * 32).begin(name, Role.VIEWER, 1e12)[0] for name in ["ann"] * 21]
    other, _ = Sessions(b"s" * 32).begin("default", Role.ADMIN, 1e12)
    for session in (other, *sessions):
        users.begun(session, "secret")
    assert users.still(other) is Role.ADMIN
    lasting = [users.still(session) is not None for session in sessions]
    assert lasting == [False] + [True] * 20
    assert node.closed == 1


async def test_wrong_passwords_are_tried_for_where_they_come_from(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    node = Node(default="secret", ann="secret")
    monkeypatch.setattr(accounts, "Calls", node.calls)
    users = AclAccounts(nursery, Nodes(), node.own(), None, LOG)
    assert await users.role("ann", "x", "192.0.2.9") is None
    assert node.checked == ["192.0.2.9"]
    assert node.logins == 0  # it would count for the console's address


@pytest.mark.parametrize(
    ("checks", "raised"),
    [
        (ReplyError("TRYAGAIN", "too many wrong passwords"), TooManyWrong),
        (ConnectionLost("no node answers"), AccountsAway),
    ],
)
async def test_a_password_that_nodes_do_not_look_at_is_not_tried_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    nursery: trio.Nursery,
    checks: DisqueError,
    raised: type[Exception],
) -> None:
    node = Node(default="secret", ann="secret")
    monkeypatch.setattr(accounts, "Calls", node.calls)
    users = AclAccounts(nursery, Nodes(), node.own(), None, LOG)
    node.checks = checks
    with pytest.raises(raised):
        await users.role("ann", "secret", "192.0.2.9")
    assert node.logins == 0


@pytest.mark.parametrize(
    "checks",
    [
        NoPermError("NOPERM", "no"),
        AuthError("NOAUTH", "no"),
        AuthError("WRONGPASS", "of the console's own user"),
        ReplyError("ERR", "unknown subcommand 'CHECK'. Try ACL HELP."),
    ],
)
async def test_with_nodes_that_check_no_passwords_for_the_console_users_log_in_without(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, checks: DisqueError
) -> None:
    node = Node(default="secret", ann="secret")
    monkeypatch.setattr(accounts, "Calls", node.calls)
    users = AclAccounts(nursery, Nodes(), node.own(), None, LOG)
    node.checks = checks
    assert await users.role("ann", "secret", "192.0.2.9") is Role.OPERATOR
    assert await users.role("ann", "x", "192.0.2.9") is None


async def test_a_session_whose_password_is_changed_ends_whoever_guesses_meanwhile(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    node = Node(default="secret", ann="secret")
    monkeypatch.setattr(accounts, "Calls", node.calls)
    users = AclAccounts(nursery, Nodes(), node.own(), None, LOG)
    sessions = [Sessions(b"s" * 32).begin("ann", Role.VIEWER, 1e12)[0] for _ in range(2)]
    for session in sessions:
        users.begun(session, "secret")
    await trio.sleep(LOOK_AGAIN + 1)
    assert [users.still(session) for session in sessions] == [Role.OPERATOR] * 2
    # Each has an origin of its own, so that no wrong password from elsewhere counts for it.
    assert len(set(node.checked)) == len(node.checked) == 2
    assert not {session.id for session in sessions} & {
        word for o in node.checked for word in o.split("/")
    }
    node.passwords["ann"] = "another"
    await trio.sleep(LOOK_AGAIN)
    assert [users.still(session) for session in sessions] == [None] * 2


def _replace(path: Path, line: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(line + "\n")
    new.replace(path)
