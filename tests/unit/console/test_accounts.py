"""Users in a file, whose sessions end when they are removed, and users of the cluster."""

from pathlib import Path
from typing import cast

import pytest
import trio

from disque_trio.console.io import accounts
from disque_trio.console.io.accounts import AccountsAway, AclAccounts, FileAccounts
from disque_trio.console.io.calls import Answer, Calls
from disque_trio.console.model.passwords import NOBODY, hash_password
from disque_trio.console.model.roles import Role
from disque_trio.console.model.sessions import Sessions
from disque_trio.overview.nodes import Nodes
from disque_trio.process.logs import Log, Logging
from disque_trio.respclient.errors import AuthError, NoPermError
from disque_trio.respclient.login import Login


@pytest.mark.parametrize("line", ["ann:operator:" + NOBODY, "bob:operator:" + NOBODY, ""])
async def test_a_session_ends_with_its_user_or_the_password(tmp_path: Path, line: str) -> None:
    users = tmp_path / "users"
    hash = hash_password("s3cret")
    users.write_text(f"ann:operator:{hash}\n")
    log = cast("Log", Logging("warning", "json").log)
    async with trio.open_nursery() as nursery:
        accounts = FileAccounts(str(users), Calls(nursery, Nodes(), Login()), log)
        assert await accounts.role("ann", "s3cret") is Role.OPERATOR
        session, _ = Sessions(b"s" * 32).begin("ann", Role.OPERATOR, 0.0, accounts.mark("ann"))
        assert accounts.still(session) is Role.OPERATOR
        _replace(users, f"ann:viewer:{hash}")
        assert accounts.still(session) is Role.VIEWER
        _replace(users, line)
        assert accounts.still(session) is None


class Node:
    """A node with the users ``default`` and ``ann``. passwords: None if any password is right."""

    def __init__(self, **passwords: str | None) -> None:
        self.passwords = passwords
        self.closed = 0

    def calls(self, nursery: object, nodes: object, login: Login) -> Calls:
        return cast("Calls", _NodeCalls(self, login))


class _NodeCalls:
    def __init__(self, node: Node, login: Login) -> None:
        self._node = node
        self._login = login

    async def any(self, *command: str) -> Answer:
        wanted = self._node.passwords[self._login.username or "default"]
        if wanted not in (None, self._login.password):
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
    users = AclAccounts(nursery, Nodes(), None)
    for password in ("", "x"):
        with pytest.raises(AccountsAway):
            await users.role("default", password)
    assert await users.role("ann", "x") is None
    assert await users.role("ann", "secret") is Role.OPERATOR
    node.passwords["default"] = "secret"
    assert await users.role("default", "x") is None
    assert await users.role("default", "secret") is Role.ADMIN


async def test_another_login_ends_the_oldest_session_of_a_user_with_many(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    node = Node(default="secret", ann="secret")
    monkeypatch.setattr(accounts, "Calls", node.calls)
    users = AclAccounts(nursery, Nodes(), None)
    sessions = [Sessions(b"s" * 32).begin(name, Role.VIEWER, 1e12)[0] for name in ["ann"] * 21]
    other, _ = Sessions(b"s" * 32).begin("default", Role.ADMIN, 1e12)
    for session in (other, *sessions):
        users.begun(session, "secret")
    assert users.still(other) is Role.ADMIN
    lasting = [users.still(session) is not None for session in sessions]
    assert lasting == [False] + [True] * 20
    assert node.closed == 1


def _replace(path: Path, line: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(line + "\n")
    new.replace(path)
