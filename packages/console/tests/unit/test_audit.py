"""The audit: nothing is done without its line, and what is not done needs none."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_console.io.audit import Audit
from disque_console.model.attempts import TRIES
from disque_trio.process.logs import Log, Logging
from packages.console.tests.support.console_app import CONFIRMED, PASSWORD, lines, log_in, world

FULL = Path("/dev/full")


@pytest.mark.parametrize("fails", ["write", "fsync"])
async def test_an_action_is_not_done_unless_its_audit_line_is_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: str
) -> None:
    def full(file: int, data: bytes = b"") -> int:
        if fails == "write":
            real(file, data[:10])  # part of the line is written
        raise OSError(errno.ENOSPC, "No space left on device")

    real = os.write
    async with world(monkeypatch, tmp_path / "audit") as here:
        cookie = here.session("admin")
        form = {**CONFIRMED, "token": here.token(cookie)}
        with monkeypatch.context() as patch:
            patch.setattr(os, fails, full)
            reply = await here.ask("POST", "/do/purge", form, cookie)
        assert reply.status == 500
        assert b"audit cannot be written: No space left" in reply.body
        assert here.calls.orders == []
        assert (await here.ask("POST", "/do/purge", form, cookie)).status == 303
        assert len(here.calls.orders) == 1
    whole = [line for line in (tmp_path / "audit").read_text().splitlines() if line[-1:] == "}"]
    assert len([line for line in whole if '"purge"' in line]) >= 2


async def test_a_line_that_a_crash_cut_off_does_not_spoil_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "audit"
    file.write_text('{"event": "action"}\n{"event": "act')
    async with world(monkeypatch, file) as here:
        assert await log_in(here, "viewer") == 303
    whole, torn, new = file.read_text().splitlines()
    assert (whole, torn) == ('{"event": "action"}', '{"event": "act')
    assert json.loads(new)["event"] == "login"


async def test_each_audit_line_is_on_disk_before_its_action(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    order: list[str] = []
    real = os.fsync

    def noted(file: int) -> None:
        real(file)
        order.append("synced")

    monkeypatch.setattr(os, "fsync", noted)
    async with world(monkeypatch, tmp_path / "audit") as here:
        run = here.calls.run

        async def act(order_: object) -> list[tuple[str, bytes]]:
            order.append("done")
            return await run(order_)  # type: ignore[arg-type, return-value]

        monkeypatch.setattr(here.calls, "run", act)
        order.clear()
        cookie = here.session("admin")
        await here.ask("POST", "/do/purge", {**CONFIRMED, "token": here.token(cookie)}, cookie)
    assert order == ["synced", "done", "synced"]
    assert [line["result"] for line in lines(tmp_path / "audit")] == ["asked", "done"]


async def test_refusals_are_answered_even_if_the_audits_disk_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch, FULL) as here:
        viewer, operator = here.session("viewer"), here.session("operator")
        bulk = {"action": "job-cancel", "filter": "queue=q", "back": "/jobs"}
        for cookie, token in ((viewer, here.token(viewer)), (operator, "")):
            for path, form in (("/do/purge", CONFIRMED), ("/bulk", bulk)):
                reply = await here.ask("POST", path, {**form, "token": token}, cookie)
                assert reply.status == 403, path
        for _ in range(TRIES):
            assert await log_in(here, "viewer", "wrong") == 403
        assert await log_in(here, "viewer", "wrong") == 429
        assert here.calls.orders == []


async def test_nobody_gets_in_without_an_audit_line_but_everybody_gets_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch, FULL) as here:
        reply = await here.ask("POST", "/login", {"user": "viewer", "password": PASSWORD})
        assert (reply.status, reply.cookie) == (503, "")
        assert b"audit cannot be written: No space left" in reply.body
        cookie = here.session("viewer")
        reply = await here.ask("POST", "/logout", {"token": here.token(cookie)}, cookie)
        assert (reply.status, reply.headers["location"]) == (303, "/login")
        assert "Max-Age=0" in reply.headers["set-cookie"]
        assert (await here.ask("GET", "/queues", cookie=cookie)).status == 303


@pytest.fixture
def log() -> Iterator[Log]:
    """The log of a console, which nobody reads."""
    logging = Logging(path=os.devnull)
    yield logging.log
    logging.close()


async def test_a_file_that_is_moved_away_is_begun_again(tmp_path: Path, log: Log) -> None:
    file = tmp_path / "audit"
    audit = Audit(str(file), log)
    await audit.write("login", user="ann")
    file.rename(tmp_path / "audit.1")
    await audit.write("login", user="bob")
    assert json.loads((tmp_path / "audit.1").read_text())["user"] == "ann"
    assert json.loads(file.read_text())["user"] == "bob"
    file.rename(tmp_path / "audit.2")
    await audit.reopen()
    assert file.read_bytes() == b""
    audit.close()


async def test_an_action_is_refused_while_no_new_file_can_be_begun(
    tmp_path: Path, log: Log
) -> None:
    place = tmp_path / "audits"
    place.mkdir()
    audit = Audit(str(place / "audit"), log)
    place.rename(tmp_path / "moved")
    await audit.reopen()
    with pytest.raises(FileNotFoundError):
        await audit.action(result="asked")
    place.mkdir()
    await audit.action(result="asked")
    assert json.loads((place / "audit").read_text())["result"] == "asked"
    assert (tmp_path / "moved" / "audit").read_bytes() == b""
    audit.close()
