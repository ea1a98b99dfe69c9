"""The application in this process, with a moved clock: who may do what, and for how long."""

import errno
import os

import pytest
import trio
from trio.testing import MockClock

from disque_console.model import sessions
from disque_console.model.actions import ACTIONS
from disque_console.model.attempts import REMEMBERED, TRIES
from disque_console.model.bulk import Phase
from disque_console.model.roles import Role
from disque_console.model.sessions import LIFETIME
from disque_console.web import live
from disque_console.web.pages import PAGES
from disque_console.web.security import BROWSER_COOKIE
from disque_console.web.visit import MAX_FORM
from packages.console.tests.support.console_app import CONFIRMED, PASSWORD, World, log_in, world

LONGEST = 60.0  # s
ROLES = [str(role) for role in Role]


@pytest.mark.parametrize("action", ACTIONS)
async def test_no_action_runs_for_a_lower_role_or_without_the_session_token(
    monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    async with world(monkeypatch) as here:
        sessions = {role: here.session(role) for role in ROLES}
        for role, cookie in sessions.items():
            other = here.token(here.session(role))
            for token in ("", "0" * 64, other, here.token(cookie)):
                if token == here.token(cookie) and Role.parse(role) >= ACTIONS[action].role:
                    continue
                form = {**CONFIRMED, "token": token}
                reply = await here.ask("POST", f"/do/{action}", form, cookie)
                assert reply.status == 403, (role, token)
        assert (await here.ask("POST", f"/do/{action}", CONFIRMED)).status == 403
        assert ACTIONS[action].role > Role.VIEWER
        assert here.calls.orders == []


@pytest.mark.parametrize("prefix", ["", "/disque"])
async def test_only_the_login_and_its_style_sheet_are_public(
    monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    async with world(monkeypatch, prefix=prefix) as here:
        paths = [page.path for page in PAGES]
        paths += ["/job/body", "/theme", "/do/purge", "/logout", "/login", "/health", "//queues"]
        paths += ["/login/../queues", "/static/../queues", "/login/queues", "/Queues", "/queues/"]
        paths += ["/static/../../app.py", "/disque/queues", "/disque", "/disquex/queues", "/%2e"]
        for path in paths:
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"):
                reply = await here.ask(method, prefix + path)
                if method in ("GET", "HEAD") and path in ("/login", "/health"):
                    assert reply.status == 200
                else:
                    assert reply.status in (303, 307, 403, 404, 405), (method, path, reply.body)
                    assert reply.headers.get("location", "/").startswith("/")
                    assert b"Queues" not in reply.body
        if prefix:
            assert (await here.ask("GET", "/queues")).status == 404
            cookie = here.session("admin")
            assert (await here.ask("GET", "/queues", cookie=cookie)).status == 404
            assert (await here.ask("GET", "/disque/disque/queues", cookie=cookie)).status == 404


async def test_requests_with_two_lengths_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("admin")
        form = {**CONFIRMED, "token": here.token(cookie)}
        both = {"content_length": "5", "transfer_encoding": "chunked"}
        for path in ("/do/purge", "/login", "/health"):
            for method in ("GET", "POST"):
                reply = await here.ask(method, path, form, cookie, **both)
                assert reply.status == 400
                assert reply.headers["connection"] == "close"
        assert here.calls.orders == []
        assert (await here.ask("GET", "/health", transfer_encoding="chunked")).status == 200


async def test_forms_from_other_sites_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("admin")
        form = {**CONFIRMED, "token": here.token(cookie)}
        for headers in (
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"origin": "http://console.example.evil.example"},
            {"origin": "http://console.example:81"},
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site", "origin": "http://console.example"},
        ):
            for path in ("/do/purge", "/login", "/logout"):
                assert (await here.ask("POST", path, form, cookie, **headers)).status == 403
        assert here.calls.orders == []
        good = {"origin": "http://console.example", "sec_fetch_site": "same-origin"}
        assert (await here.ask("POST", "/do/purge", form, cookie, **good)).status == 303
        assert len(here.calls.orders) == 1


async def test_a_session_ends_and_cannot_be_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("admin")
        assert (await here.ask("GET", "/queues", cookie=cookie)).status == 200
        here.clock.now += LIFETIME
        assert (await here.ask("GET", "/queues", cookie=cookie)).status == 303
        again = here.session("admin")
        form = {"token": here.token(again)}
        assert (await here.ask("POST", "/logout", form, again)).status == 303
        assert (await here.ask("GET", "/queues", cookie=again)).status == 303
        assert (await here.ask("POST", "/do/purge", CONFIRMED | form, again)).status == 403
        assert here.calls.orders == []


@pytest.mark.parametrize("end", ["logout", "expires", "removed", "less", "more"])
async def test_a_stream_ends_with_its_visitors_permissions(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, end: str
) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("operator")
        seen = 0
        begun = trio.current_time()
        pieces = here.follow("GET", "/queues", cookie=cookie, accept="text/event-stream")
        async for piece in pieces:
            seen += piece.startswith(b"data: ")
            if seen == 1 and piece.startswith(b"data: "):
                if end == "logout":
                    form = {"token": here.token(cookie)}
                    await here.ask("POST", "/logout", form, cookie)
                elif end == "expires":
                    here.clock.now += LIFETIME
                elif end == "removed":
                    del here.users.roles["operator"]
                else:
                    role = Role.VIEWER if end == "less" else Role.ADMIN
                    here.users.roles["operator"] = role
        assert seen == 1
        assert trio.current_time() - begun < 5


async def test_a_stream_goes_on_while_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(live, "LONGEST", LONGEST)
    async with world(monkeypatch) as here:
        begun = trio.current_time()
        cookie = here.session("viewer")
        async for _ in here.follow("GET", "/queues", cookie=cookie, accept="text/event-stream"):
            pass
        assert trio.current_time() - begun > LONGEST - 1


async def _watch(here: World, cookie: str, seen: list[bytes]) -> None:
    stream = here.follow("GET", "/queues", cookie=cookie, accept="text/event-stream")
    seen.extend([piece async for piece in stream])


async def test_streams_are_limited_by_session_by_user_and_for_all(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(sessions, "STREAMS", 3)
    monkeypatch.setattr(sessions, "USER_STREAMS", 5)
    monkeypatch.setattr(sessions, "ALL_STREAMS", 8)
    async with world(monkeypatch) as here, trio.open_nursery() as nursery:

        async def more(cookie: str, count: int) -> list[bool]:
            """Open streams; returns whether each goes on."""
            seen: list[list[bytes]] = [[] for _ in range(count)]
            for pieces in seen:
                nursery.start_soon(_watch, here, cookie, pieces)
                await trio.sleep(1)
            return [not pieces for pieces in seen]

        first, second = here.session("viewer"), here.session("viewer")
        third, fourth = here.session("operator"), here.session("admin")
        assert await more(first, 5) == [True, True, True, False, False]
        assert await more(second, 3) == [True, True, False]
        assert await more(third, 2) == [True, True]
        assert await more(fourth, 2) == [True, False]
        form = {"token": here.token(first)}
        assert (await here.ask("POST", "/logout", form, first)).status == 303
        await trio.sleep(3)
        assert await more(second, 2) == [True, False]
        assert await more(fourth, 3) == [True, True, False]
        nursery.cancel_scope.cancel()


async def test_a_stream_too_many_says_so_and_a_browser_that_leaves_makes_room(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(sessions, "STREAMS", 1)
    async with world(monkeypatch) as here:
        cookie = here.session("viewer")
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, here, cookie, [])
                await trio.sleep(1)
                refused: list[bytes] = []
                await _watch(here, cookie, refused)
                assert b"".join(refused) == b"event: full\ndata: {}\n\n"
                nursery.cancel_scope.cancel()


async def test_wrong_passwords_are_limited_by_address_and_by_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as here:
        for _ in range(TRIES):
            assert await log_in(here, "ghost", "wrong") == 403
        assert await log_in(here, "ghost", "wrong") == 429
        assert await log_in(here, "viewer") == 429
        assert await log_in(here, "viewer", address="2") == 303
        assert await log_in(here, "ghost", "wrong", "2") == 403
        assert await log_in(here, "ghost", "wrong", "2") == 429
        here.clock.now += 6.1
        assert await log_in(here, "viewer") == 303
        assert await log_in(here, "ghost", "wrong") == 403
        assert await log_in(here, "ghost", "wrong") == 429


async def test_nobody_can_lock_out_a_user_by_guessing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as here:
        form = {"user": "admin", "password": PASSWORD}
        entered = await here.ask("POST", "/login", form, address="home")
        assert entered.status == 303
        assert entered.cookies[BROWSER_COOKIE].split("; ")[1:] == [
            "Max-Age=15552000",
            "Path=/",
            "HttpOnly",
            "SameSite=Lax",
        ]
        browser = entered.cookies[BROWSER_COOKIE].partition(";")[0]
        for number in range(50):
            here.clock.now += 1.0
            evil = f"evil {number % 3}"
            assert await log_in(here, "admin", "wrong", evil) in (403, 429)
            assert await log_in(here, "ghost", "wrong", "home") in (403, 429)
            assert await log_in(here, "admin", address="home") == 303
            assert await log_in(here, "admin", address=f"new {number}") == 303
        for _ in range(TRIES + 1):
            last = await log_in(here, "admin", "wrong", "home")
        assert last == 429
        reply = await here.ask("POST", "/login", form, address="home", browser=browser)
        assert reply.status == 303
        assert reply.cookies[BROWSER_COOKIE].partition(";")[0] != ""
        forged = await here.ask("POST", "/login", form, address="home", browser="x" + browser)
        assert forged.status == 429


async def test_the_nodes_learn_where_a_password_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch, trusted=frozenset({"proxy"})) as here:
        form = {"user": "admin", "password": PASSWORD}

        async def origin(**headers: str) -> str:
            reply = await here.ask("POST", "/login", form, **headers)  # type: ignore[arg-type]
            assert reply.status == 303
            return here.users.origins[-1]

        assert await origin(address="10.0.0.9", x_forwarded_for="10.1.1.1") == "10.0.0.9"
        assert await origin(address="proxy", x_forwarded_for="10.1.1.1, 10.2.2.2") == "10.2.2.2"
        assert await origin(address="proxy", x_forwarded_for="a \xff" + "b" * 200) == (
            "a???" + "b" * 60
        )
        entered = await here.ask("POST", "/login", form, address="10.0.0.9")
        browser = entered.cookies[BROWSER_COOKIE].partition(";")[0]
        known = await origin(address="10.0.0.9", browser=browser)
        assert known.startswith("10.0.0.9/")
        assert known == await origin(address="10.0.0.9", browser=browser)


async def test_who_guesses_too_often_for_the_nodes_has_to_wait_and_no_other_visitor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as here:
        here.users.refused.add("evil")
        assert await log_in(here, "admin", address="evil") == 429
        assert await log_in(here, "admin", address="other") == 303


async def test_ten_thousand_logins_leave_little_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as here:
        for number in range(10_000):
            here.clock.now += 0.01
            keys = here.console.attempts.keys(f"address {number}", f"user {number}")
            here.console.attempts.failed(keys, here.clock.now)
        assert await log_in(here, "viewer", address="x") == 303
        assert len(here.console.attempts._used) <= REMEMBERED + 3
        for number in range(50):
            assert await log_in(here, "n" * 100_000, "wrong", f"long {number}") == 413
            assert await log_in(here, "n" * 50_000, "wrong", f"long {number}") in (403, 429)
        assert max(map(len, here.console.attempts._used)) < 400


async def test_forms_that_are_too_large_or_endless_are_abandoned(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("admin")
        large = [b"body=" + b"x" * MAX_FORM, b"x", None]
        assert (await here.ask("POST", "/do/add", large, cookie)).status == 413
        begun = trio.current_time()
        assert (await here.ask("POST", "/do/add", [b"body=", None], cookie)).status == 408
        assert 30 < trio.current_time() - begun < 120
        assert (await here.ask("POST", "/login", [b"user=", None])).status == 408
        many = "&".join(f"f{number}=" for number in range(20_000)).encode()
        assert (await here.ask("POST", "/do/add", [many], cookie)).status == 403
        assert here.calls.orders == []


async def test_invalid_addresses_are_refused_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("viewer")
        reply = await here.ask("GET", "/theme?to=dark&back=//[", cookie=cookie)
        assert (reply.status, reply.headers["location"]) == (303, "/")
        form = {"user": "viewer", "password": PASSWORD, "next": "http://[x"}
        reply = await here.ask("POST", "/login", form)
        assert (reply.status, reply.headers["location"]) == (303, "/")
        reply = await here.ask("POST", "/login", form, origin="http://[x")
        assert reply.status == 403


async def _begin_bulk(here: World, cookie: str, filter: str = "queue=q") -> tuple[int, str]:
    form = {"action": "job-cancel", "filter": filter, "back": "/jobs", "token": here.token(cookie)}
    reply = await here.ask("POST", "/bulk", form, cookie)
    return reply.status, reply.headers.get("location", "").rpartition("=")[2]


async def test_a_run_that_is_stopped_while_its_confirmation_is_written_stays_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("operator")
        status, id = await _begin_bulk(here, cookie)
        session = here.console.sessions.read(cookie, here.clock.now)
        assert status == 303
        assert session is not None
        run = here.console.bulks.get(id, session.id)
        assert run is not None

        async def write(event: str, **fields: object) -> None:
            if fields["result"] == "asked":
                run.stop()

        monkeypatch.setattr(here.console.audit, "write", write)
        form = {"run": id, "do": "confirm", "token": here.token(cookie)}
        assert (await here.ask("POST", "/bulk/go", form, cookie)).status == 303
        assert run.phase is Phase.STOPPED


async def test_the_end_of_a_run_is_shown_even_if_the_audits_disk_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("operator")
        _, id = await _begin_bulk(here, cookie)

        async def write(event: str, **fields: object) -> None:
            if fields["result"] != "asked":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(here.console.audit, "write", write)
        form = {"run": id, "do": "confirm", "token": here.token(cookie)}
        assert (await here.ask("POST", "/bulk/go", form, cookie)).status == 303


async def test_an_invalid_filter_does_not_match_all_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("operator")
        many = "queue=q" + "&header=h" * 10_000
        assert (await _begin_bulk(here, cookie, many))[0] == 400


async def test_cookies_of_a_console_with_a_shorter_prefix_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch, prefix="/disque") as here:
        # As browsers send them: those with longer paths first.
        cookie = f"{here.session('viewer')}; disque_console_theme=dark"
        other = "disque_console=of-another; disque_console_theme=light"
        reply = await here.ask("GET", "/disque/queues", cookie=f"{cookie}; {other}")
        assert reply.status == 200
        assert b'data-theme="dark"' in reply.body
