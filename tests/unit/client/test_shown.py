"""What clients read of SHOW, against what a node shows."""

import re
from pathlib import Path
from typing import Any

from disque_trio.client.replies import record
from disque_trio.client.shown import ShownJob
from tests.support.node_bench import Bench


def test_all_that_a_node_shows_is_read_with_its_type() -> None:
    bench = Bench()
    bench("QSET", "new", "ATTEMPTS", 3, "DEAD", "dead")
    options = ("PRIORITY", 3, "GROUP", "g", "NOTE", "n", "HEADERS", 1, "name", "value")
    id = bench("ADDJOB", "old", "body", 0, "UNIQUE", "key", *options)
    starting = _shown(bench, bench.add("more", "body", "UNIQUE", "key", "UNTIL", "START"))
    assert isinstance(id, bytes)
    bench.send(bench.me, "QMOVE", "old", "new")
    bench.advance(1)
    assert bench.replies(bench.me) == [1]
    bench.get("new")
    bench("NACK", id, "REASON", "why")
    bench.get("new")
    bench("WORKING", id, "PROGRESS", 0.5, "half")
    taken = _shown(bench, id, "CLIENT", "MAXBODY", 2)
    bench("NACK", id, "REASON", "over", "DEAD")
    [letter_id] = bench.get_all("dead")
    letter = _shown(bench, letter_id, "CLIENT", "MAXBODY", 2)

    names = {name.replace("_", "-") for name in ShownJob.__dataclass_fields__}
    assert taken.keys() | letter.keys() | starting.keys() == names
    for shown in (taken, letter, starting):
        read = _read(shown)
        for name, value in shown.items():
            found = getattr(read, name.replace("-", "_"))
            assert found in (value, _as_read(value)), name
    read = _read(letter)
    assert read.letter is not None
    assert (read.letter.queue, read.letter.why, read.letter.reason) == ("new", "refused", "over")
    assert dict(read.facts)["Group"] == "g"


def test_the_page_of_commands_names_all_fields() -> None:
    page = Path(__file__).parents[3] / "docs" / "commands.md"
    section = page.read_text().partition("### SHOW")[2].partition("###")[0]
    words = set(re.findall(r"[a-z-]+", section))
    assert {name.replace("_", "-") for name in ShownJob.__dataclass_fields__} - words == set()


def _shown(bench: Bench, id: bytes, *options: str | int) -> dict[str, Any]:
    reply = bench("SHOW", id, *options)
    assert isinstance(reply, list)
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _read(shown: dict[str, Any]) -> ShownJob:
    fields = record([part for name, value in shown.items() for part in (name.encode(), value)])
    assert fields is not None
    return ShownJob.of(fields)


def _as_read(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode()
    return tuple(map(_as_read, value)) if isinstance(value, list) else value


def test_clients_read_all_fields_of_qstat_with_lists_of_names_and_of_numbers() -> None:
    bench = Bench()
    bench("ADDJOB", "q", "body", 0)
    reply = bench("QSTAT", "q")
    assert isinstance(reply, list)
    fields = record(reply)
    assert fields is not None
    assert list(fields) == [name.decode() for name in reply[::2]]
    assert fields["wait-recent"] == reply[reply.index(b"wait-recent") + 1]
    assert fields["import-from"] == []
