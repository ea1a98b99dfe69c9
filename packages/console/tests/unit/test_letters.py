"""Dead letters by reason, and the queues that have them."""

from disque_console.model.jobs import read_copy
from disque_console.model.letters import JobCopyAt, grouped
from disque_trio.client import Policy
from disque_trio.overview.policies import Policies
from disque_trio.overview.queues import QueueTable


def letter(id: str, origin: str = "", why: str = "", reason: str = "") -> JobCopyAt:
    reply = [b"id", id.encode(), b"queue", b"dead", b"state", b"queued", b"body", b""]
    if why:
        reply += [b"dead-from", origin.encode(), b"dead-why", why.encode()]
        reply += [b"dead-reason", reason.encode()]
    copy = read_copy(list(reply))
    assert copy is not None
    return JobCopyAt("here", copy)


def test_letters_are_grouped_by_origin_why_and_reason_the_most_first() -> None:
    found = [
        letter("1"),
        letter("2", "q", "attempts", "timeout"),
        letter("3", "q", "attempts", "timeout"),
        letter("4", "q", "attempts", "timeout"),
        letter("5", "r", "attempts", "timeout"),
        letter("6", "q", "expired", "timeout"),
        letter("7", "r", "attempts", "timeout"),
    ]
    groups = grouped(found)
    assert [(g.origin, g.why, [f.copy.id for f in g.letters]) for g in groups] == [
        ("q", "attempts", ["2", "3", "4"]),
        ("r", "attempts", ["5", "7"]),
        ("", "", ["1"]),
        ("q", "expired", ["6"]),
    ]


def test_queues_of_dead_letters_are_those_of_policies_of_any_kind() -> None:
    policies = Policies(
        [
            Policy("one", dead="one.dead"),
            Policy("mail.*", dead="mail.dead"),
            Policy("*", dead="all.dead"),
            Policy("none", attempts=3),
        ]
    )
    assert policies.dead == {"one.dead", "mail.dead", "all.dead"}


def test_a_queue_with_letters_is_known_by_the_nodes() -> None:
    table = QueueTable()
    full = {b"len": 1, b"jobs-delayed": 0, b"jobs-in-hand": 0}
    table.take("here", "a", full | {b"jobs-dead": 2}, 1.0)
    table.take("here", "b", full | {b"jobs-dead": 0}, 1.0)
    table.take("here", "c", {b"len": 1}, 1.0)
    assert table.with_letters() == {"a"}
