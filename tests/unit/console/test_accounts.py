"""Users in a file, whose sessions end when they are removed."""

from pathlib import Path
from typing import cast

import pytest
import trio

from disque_trio.console.io.accounts import FileAccounts
from disque_trio.console.io.calls import Calls
from disque_trio.console.model.passwords import NOBODY, hash_password
from disque_trio.console.model.roles import Role
from disque_trio.console.model.sessions import Sessions
from disque_trio.overview.nodes import Nodes
from disque_trio.process.logs import Log, Logging
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


def _replace(path: Path, line: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(line + "\n")
    new.replace(path)
