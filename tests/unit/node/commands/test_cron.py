"""CRON: what it accepts, what it refuses, and its replies."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest

from disque_trio.node.core.shared.cron_times import times_of
from disque_trio.node.core.shared.schedules import MAX_CONTENTS, MAX_SCHEDULES, MAX_SIZE, Schedule
from disque_trio.node.core.shared.versions import Entry
from disque_trio.protocol import bus
from tests.support.mesh import Mesh
from tests.support.node_bench import START, Bench


def fields(reply: object) -> dict[bytes, Any]:
    assert isinstance(reply, list)
    return dict(zip(reply[::2], reply[1::2], strict=True))


def get(bench: Bench, name: str = "s") -> dict[bytes, Any]:
    return bench.fields("CRON", "GET", name)


def sent(schedule: Schedule) -> bytes:
    """Return a schedule as another node sends it."""
    return Entry(schedule.name, schedule, 9, b"f" * 40, 0).fields()


def test_a_schedule_is_set_and_read(bench: Bench) -> None:
    words = ("0 3 * * *", "TZ", "Europe/Berlin", "CATCHUP", "q", "body", "RETRY", 5, "ASYNC")
    assert bench("CRON", "SET", "s", *words) == b"OK"
    assert get(bench) == {
        b"name": b"s",
        b"times": b"0 3 * * *",
        b"tz": b"Europe/Berlin",
        b"catchup": 1,
        b"paused": 0,
        b"queue": b"q",
        b"job": b"body",
        b"options": [b"RETRY", b"5", b"ASYNC"],
        b"done-until": START,
        b"next": 1_700_013_600_000,
        b"after-next": [1_700_013_600_000 + 86_400_000 * days for days in (1, 2, 3, 4)],
    }


def test_zone_and_catchup_may_stand_behind_the_job(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@daily", "q", "body", "CATCHUP", "RETRY", 5, "TZ", "Europe/Berlin")
    found = get(bench)
    assert (found[b"catchup"], found[b"tz"]) == (1, b"Europe/Berlin")
    assert found[b"options"] == [b"RETRY", b"5"]


def test_what_is_called_like_an_option_may_be_the_job(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@daily", "q", "CATCHUP")
    bench("CRON", "SET", "t", "@daily", "q", "TZ", "RETRY", 5)
    assert (get(bench)[b"job"], get(bench)[b"catchup"]) == (b"CATCHUP", 0)
    assert (get(bench, "t")[b"job"], get(bench, "t")[b"tz"]) == (b"TZ", b"UTC")


def test_all_are_listed_by_name_without_their_jobs(bench: Bench) -> None:
    assert bench("CRON", "LIST") == []
    for name in ("b", "a"):
        bench("CRON", "SET", name, "@hourly", "q", "body")
    listed = [fields(entry) for entry in bench("CRON", "list")]  # type: ignore[attr-defined]
    assert [entry[b"name"] for entry in listed] == [b"a", b"b"]
    assert all(b"job" not in entry for entry in listed)


def test_commands_on_a_missing_schedule(bench: Bench) -> None:
    assert bench("CRON", "GET", "s") is None
    assert bench("CRON", "DEL", "s") == 0
    for word in ("PAUSE", "RESUME", "RUN"):
        assert bench.error("CRON", word, "s") == "ERR there is no schedule with this name"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["SET"], "wrong number of arguments"),
        (["SET", "s", "@daily", "q"], "wrong number of arguments"),
        (["SET", "s", "@daily", "TZ", "UTC", "q"], "needs times, a queue and a job"),
        (["SET", "s", "@daily", "CATCHUP", "q"], "needs times, a queue and a job"),
        (["SET", "", "@daily", "q", "body"], "a name must have"),
        (["SET", "x" * 4_097, "@daily", "q", "body"], "a name must have"),
        (["SET", "s", "", "q", "body"], "times"),
        (["SET", "s", "x" * 300, "q", "body"], "times"),
        (["SET", "s", "0 0 30 2 *", "q", "body"], "times"),
        (["SET", "s", "@daily", "TZ", "Mars", "q", "body"], "no time zone"),
        (["SET", "s", "@daily", "TZ", "UTC", "TZ", "UTC", "q", "body"], "syntax error"),
        (["SET", "s", "@daily", "q", "body", "RETRY"], "syntax error"),
        (["SET", "s", "@daily", "q", "body", "RETRY", "-1"], "RETRY"),
        (["SET", "s", "@daily", "q", "body", "PRIORITY", "9"], "PRIORITY"),
        (["SET", "s", "@daily", "q", "body", "RETRY", "0"], "needs REPLICATE 1"),
        (["SET", "s", "@daily", "q", "body", "DELAY", "5", "TTL", "5"], "greater than TTL"),
        (["SET", "s", "@daily", "q", "body", "UNIQUE", "key"], "not for schedules"),
        (["SET", "s", "@daily", "q", "body", "AT", "1800000000000"], "not for schedules"),
        (["SET", "s", "@daily", "q", "body", "ANYWAY"], "require UNIQUE"),
        (["SET", "s", "@daily", "q", "x" * MAX_CONTENTS], "65536 bytes"),
        (["LIST", "s"], "wrong number of arguments"),
        (["GET"], "wrong number of arguments"),
        (["DEL", "s", "t"], "wrong number of arguments"),
        (["EVERY", "s"], "syntax error"),
        ([""], "syntax error"),
    ],
)
def test_invalid_schedules_are_refused_and_nothing_changes(
    bench: Bench, words: Sequence[str], problem: str
) -> None:
    assert problem in bench.error("CRON", *words)
    assert bench("CRON", "LIST") == []


def test_a_value_that_looks_like_an_option_of_the_schedule(bench: Bench) -> None:
    words = ("@daily", "q", "body", "HEADERS", 1, "unique", "at")
    assert bench("CRON", "SET", "s", *words) == b"OK"
    assert get(bench)[b"options"] == [b"HEADERS", b"1", b"unique", b"at"]


def test_headers_may_be_called_as_the_options_of_the_schedule(bench: Bench) -> None:
    headers = ("HEADERS", 2, "tz", "Mars", "catchup", "x")
    assert (
        bench("CRON", "SET", "s", "@daily", "q", "body", "TZ", "Europe/Berlin", *headers) == b"OK"
    )
    found = get(bench)
    assert found[b"options"] == [b"HEADERS", b"2", b"tz", b"Mars", b"catchup", b"x"]
    assert (found[b"tz"], found[b"catchup"]) == (b"Europe/Berlin", 0)


def test_a_group_may_be_called_as_an_option_of_the_schedule(bench: Bench) -> None:
    assert bench("CRON", "SET", "s", "@daily", "q", "body", "GROUP", "catchup") == b"OK"
    found = get(bench)
    assert (found[b"options"], found[b"catchup"]) == ([b"GROUP", b"catchup"], 0)


def test_there_is_a_limit_to_their_number(bench: Bench) -> None:
    for number in range(MAX_SCHEDULES):
        bench("CRON", "SET", f"s{number}", "@every 1d", "q", "body")
    error = bench.error("CRON", "SET", "one more", "@every 1d", "q", "body")
    assert "10000 schedules already" in error
    assert bench("CRON", "SET", "s5", "@every 2d", "q", "body") == b"OK"


def test_there_is_a_limit_to_their_size(bench: Bench) -> None:
    body = "x" * (MAX_CONTENTS - 1)
    for number in range(MAX_SIZE // MAX_CONTENTS - 1):
        assert bench("CRON", "SET", f"s{number}", "@every 1d", "q", body) == b"OK"
    error = bench.error("CRON", "SET", "one more", "@every 1d", "q", body)
    assert f"more than {MAX_SIZE} bytes" in error
    assert bench("CRON", "SET", "s5", "@every 2d", "q", body) == b"OK"


def test_c_nodes_have_no_schedules() -> None:
    mesh = Mesh(2)
    mesh.c_nodes.add(1)
    for peers in mesh.peers:
        peers.judge_extensions()
    assert mesh[0].error("CRON", "SET", "s", "@daily", "q", "body").startswith("NOEXT")


def test_a_full_disk_is_reported_and_nothing_changes(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@daily", "q", "body")
    before = get(bench)
    bench.node.ticks.sharing.keep = lambda names: "No space left on device"
    assert "No space left" in bench.error("CRON", "SET", "s", "@hourly", "q", "other")
    assert "No space left" in bench.error("CRON", "PAUSE", "s")
    assert "No space left" in bench.error("CRON", "DEL", "s")
    assert get(bench) == before


def test_without_cronsim_only_periods_are_possible(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    times_of.cache_clear()
    assert "cronsim" in bench.error("CRON", "SET", "s", "@daily", "q", "body")
    assert bench("CRON", "SET", "s", "@every 5s", "q", "body") == b"OK"
    schedule = Schedule(b"t", b"@daily", b"", 0, b"q", b"body", [])
    bench.node.ticks.sharing.on_packet(b"x", [(1, sent(schedule))])
    assert b"cronsim" in get(bench, "t")[b"problem"]
    assert get(bench, "t")[b"next"] is None


@pytest.mark.parametrize(
    "data",
    [
        [(1, b"")],
        [(1, sent(Schedule(b"s", b"x" * 300, b"", 0, b"", b"", [])))],
        [(1, sent(Schedule(b"s", b"", b"", 0, b"", b"x" * 70_000, [])))],
        [(4, b"rubbish")],
        [(4, b"")],
    ],
)  # fmt: skip
def test_malformed_packets_change_nothing(data: list[tuple[int, bytes]]) -> None:
    mesh = Mesh(2)
    node = mesh[0].node
    packet = mesh[1].node.packets.fields(bus.SCHEDULES, data)
    node.receive(mesh.ids[1], packet, mesh[0].now)
    assert node.bad_packets + node.ticks.sharing.refused == 1
    assert node.ticks.schedules.entries == {}


def test_a_schedule_of_another_node_that_makes_no_sense_is_shown_and_does_not_tick() -> None:
    mesh = Mesh(2)
    schedule = Schedule(b"s", b"every now and then", b"", 0, b"q", b"body", [b"nonsense"])
    data = [(1, sent(schedule))]
    node = mesh[0].node
    node.receive(mesh.ids[1], mesh[1].node.packets.fields(bus.SCHEDULES, data), mesh[0].now)
    mesh.advance(120)
    assert b"times" in get(mesh[0])[b"problem"]
    assert node.bad_packets == 0
