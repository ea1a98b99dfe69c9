"""ADDJOB NOTE: a text for people that stays with the job."""

import pytest

from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

NOTE = "asked for by Ann, see ticket 17"


def test_show_has_the_note(bench: Bench) -> None:
    plain, other = bench.add(), bench.add("q", "b", "NOTE", NOTE, "GROUP", "g")
    assert b"note" not in bench.show(plain)
    assert bench.show(other)[b"note"] == NOTE.encode()


def test_a_dead_letter_keeps_it_and_so_does_the_job_that_is_made_of_it_again(bench: Bench) -> None:
    bench("QSET", "q", "DEAD", "dead", "ATTEMPTS", 1)
    bench.add("q", "b", "NOTE", NOTE)
    bench("NACK", bench.get())
    dead = bench.get("dead")
    assert dead is not None
    assert bench.show(dead)[b"note"] == NOTE.encode()
    bench("NACK", dead)
    bench.send(bench.me, "REDRIVE", "dead")
    bench.advance(0.1)
    assert bench.replies(bench.me) == [1]
    again = bench.get()
    assert again is not None
    assert bench.show(again)[b"note"] == NOTE.encode()


def test_all_copies_have_it() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 3, "NOTE", NOTE)
    assert [mesh[index].show(id)[b"note"] for index in range(3)] == [NOTE.encode()] * 3


def test_a_schedule_gives_it_to_its_jobs_even_if_it_is_called_like_an_option(bench: Bench) -> None:
    for note in ("TZ", "CATCHUP", "HEADERS"):
        bench("CRON", "SET", "s", "@daily", "q", "body", "NOTE", note, "TZ", "Europe/Berlin")
        fields = bench.fields("CRON", "GET", "s")
        assert fields[b"options"] == [b"NOTE", note.encode()]
        assert (fields[b"tz"], fields[b"catchup"]) == (b"Europe/Berlin", 0)


@pytest.mark.parametrize("words", [["NOTE"], ["NOTE", ""], ["NOTE", "x" * 1001]])
def test_a_wrong_note_is_refused(bench: Bench, words: list[str]) -> None:
    error = bench.error("ADDJOB", "q", "b", 0, *words)
    assert error in ("ERR syntax error", "ERR the text of a NOTE must have 1 to 1000 bytes")
    assert bench.error("ADDJOB", "q", "b", 0, "NOTE", "a", "NOTE", "b") == "ERR NOTE is given twice"
    assert bench.node.store.jobs.count == 0


def test_it_is_refused_beside_a_node_that_could_not_keep_it() -> None:
    mesh = Mesh(2)
    mesh.c_nodes = {1}
    mesh.peers[0].judge_extensions()
    assert mesh[0].error("ADDJOB", "q", "b", 0, "NOTE", NOTE).startswith("NOEXT ")
