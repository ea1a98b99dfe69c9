"""The application in this process: requests with parts that somebody forged."""

import threading
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, urlencode

import pytest

from disque_console.model.attempts import TRIES
from disque_console.web import visit
from disque_console.web.visit import MAX_FORM
from packages.console.tests.support.console_app import LEFT, PASSWORD, world


@pytest.mark.parametrize(
    "elsewhere",
    [
        "//evil.example/", "///evil.example/", "////evil.example", "/\\evil.example",
        "/\\/evil.example", "\\\\evil.example", "/queues\\..\\..", "https://evil.example/",
        "javascript:alert(1)", "evil.example", "", "/\t/evil.example", "/\r\nX-Y: z", "/\udcff",
    ],
)  # fmt: skip
async def test_nobody_is_led_to_another_site(
    monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("operator")
        where = quote(elsewhere, errors="surrogateescape")
        reply = await here.ask("GET", f"/theme?to=dark&back={where}", cookie=cookie)
        assert (reply.status, reply.headers["location"]) == (303, "/")
        form = f"user=viewer&password={PASSWORD}&next={where}".encode()
        reply = await here.ask("POST", "/login", [form])
        assert (reply.status, reply.headers["location"]) == (303, "/")
        form = f"queue=q&direction=in&back={where}&token={here.token(cookie)}".encode()
        reply = await here.ask("POST", "/do/pause", [form], cookie)
        assert (reply.status, reply.headers["location"]) == (303, "/")


@pytest.mark.parametrize("page", ["/", "/queues?search=%5C&x=//y", "/queue/?name=%2F%2Fz", "/a//b"])
async def test_pages_of_the_console_can_be_returned_to(
    monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("viewer")
        reply = await here.ask("GET", f"/theme?to=dark&back={quote(page)}", cookie=cookie)
        assert reply.headers["location"] == page


async def test_a_visitor_cannot_choose_the_address_that_a_trusted_proxy_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch, trusted=frozenset({"127.0.0.1"})) as here:
        form = {"user": "", "password": "wrong"}
        for number in range(TRIES):
            user = {"user": f"user{number}"}
            forged = f"10.0.0.{number}"
            for forwarded in ([forged, "203.0.113.7"], f"{forged}, 203.0.113.7"):
                reply = await here.ask(
                    "POST", "/login", form | user, address="127.0.0.1", x_forwarded_for=forwarded
                )
                assert reply.status == (403 if number < TRIES / 2 else 429)


async def test_the_form_of_a_visitor_who_may_not_do_it_is_not_even_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("viewer")
        for pieces in ([b"a=" + b"%41" * 1_000_000, None], [b"x" * MAX_FORM, b"x"]):
            reply = await here.ask("POST", "/do/purge", pieces, cookie)
            assert reply.status == 403
        for path in ("/bulk", "/bulk/go", "/logout"):
            reply = await here.ask("POST", path, [b"x" * MAX_FORM, b"x"], cookie)
            assert reply.status == 413


async def test_others_are_served_while_a_large_form_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[str] = []

    def noted(data: bytes) -> dict[str, list[str]]:
        threads.append(threading.current_thread().name)
        return parse_fields(data)

    parse_fields = visit.parse_fields
    monkeypatch.setattr(visit, "parse_fields", noted)
    async with world(monkeypatch) as here:
        cookie = here.session("operator")
        form = {"queue": "q", "body": "x" * 100_000, "token": here.token(cookie)}
        assert (await here.ask("POST", "/do/add", form, cookie)).status == 303
        [order] = here.calls.orders
        assert order.command[2] == b"x" * 100_000
    assert set(threads) > {threading.current_thread().name}


async def test_the_audit_of_a_forged_form_is_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = "é" * 100_000
    forms: list[bytes] = [
        urlencode({long: "x"}).encode(),
        f"queue={long}&queue={long}".encode(),
        "&".join(f"field{number}={'é' * 1000}" for number in range(1000)).encode(),
        b"&".join(b"job=" + long.encode() for _ in range(50)),
    ]
    async with world(monkeypatch, tmp_path / "audit") as here:
        for form in forms:
            reply = await here.ask("POST", "/do/pause", [form], here.session("operator"))
            assert reply.status == 403
    lines = (tmp_path / "audit").read_text().splitlines()
    assert len(lines) == len(forms)
    assert max(map(len, lines)) < 30_000


async def test_a_filter_with_unknown_conditions_does_not_match_more_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("operator")
        form = {"action": "job-cancel", "back": "/jobs", "token": here.token(cookie)}
        for filter, status in (("queue=q", 303), ("", 303), ("queu=q", 400), ("queue=q&x=", 400)):
            reply = await here.ask("POST", "/bulk", form | {"filter": filter}, cookie)
            assert reply.status == status, filter


@pytest.mark.parametrize("page", ["/queues", "/clients", "/schedules", "/workers", "/jobs"])
async def test_any_bytes_may_be_in_a_query(monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    async with world(monkeypatch) as here:
        cookie = here.session("admin")
        for field in ("order", "sort", "search", "size", "page", "queue", "state"):
            reply = await here.ask("GET", f"{page}?{field}=%ff%00%f0", cookie=cookie)
            assert reply.status == 200, field


async def test_the_answer_to_a_wrong_method_names_the_right_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as here:
        reply = await here.ask("POST", "/queues", {}, here.session("admin"))
        assert reply.status == 405
        assert set(reply.headers["allow"].split(", ")) == {"GET", "HEAD"}
        assert b"Method not allowed" in reply.body


@pytest.mark.parametrize("path", ["/login", "/logout", "/do/add", "/bulk"])
async def test_a_visitor_who_leaves_before_the_form_has_arrived_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async with world(monkeypatch) as here:
        logged: list[object] = []
        note = SimpleNamespace(warning=lambda *texts, **fields: logged.append(texts))
        here.console.log = note  # type: ignore[assignment]
        cookie = here.session("admin")
        reply = await here.ask("POST", path, [b"user=", LEFT], cookie)
        assert reply.status == 400
        assert logged == []
        assert here.calls.orders == []
