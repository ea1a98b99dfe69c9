"""Policies are shown as sentences."""

from dataclasses import fields

import pytest

from disque_console.model.policy_sentence import sentences
from disque_trio.client import Policy


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Policy("q"), ""),
        (Policy("q", attempts=1), "A job is delivered once."),
        (
            Policy("q", attempts=5, backoff=(1, 60), dead="q.dead", dead_ttl=604_800),
            "A job is delivered up to 5 times, with pauses of 1 s to 60 s, then it goes"
            " to q.dead and"
            " stays there for 7 d.",
        ),
        (Policy("q", backoff=(2, 2)), "Jobs come again with pauses of 2 s."),
        (
            Policy("q", dead="d"),
            "A job that expires, or that a worker gives up, is dead: it goes to d.",
        ),
        (
            Policy("q", rate="50/s", burst=10, active=4),
            "At most 50/s are delivered, 10 at once after a pause. Workers have at most 4"
            " at the same"
            " time.",
        ),
        (
            Policy("q", groups="fifo", group_rate="1/m", group_burst=2, group_active=1),
            "Groups take turns, and each has one job in hand at a time. Of a group at most 1/m are"
            " delivered, 2 at once after a pause. Workers have at most 1 of a group at"
            " the same time.",
        ),
        (
            Policy("q", delay=5, retry=30, ttl=3600, replicate=3, maxlen=1000, maxbytes=1 << 20),
            "If their producers say nothing else, jobs wait 5 s before the first"
            " delivery, come again"
            " after 30 s without an answer, live for 60 min and are kept on 3 nodes."
            " Further jobs are"
            " refused once 1,000 jobs or bodies of 1 MiB are queued.",
        ),
        (
            Policy("q", retry=0),
            "If their producers say nothing else, jobs are delivered at most once.",
        ),
    ],
)
def test_a_policy_is_told_in_sentences(policy: Policy, text: str) -> None:
    assert " ".join(sentences(policy)) == text


@pytest.mark.parametrize("name", [each.name for each in fields(Policy) if each.name != "name"])
def test_no_option_is_left_out(name: str) -> None:
    some = {
        "dead": "d",
        "backoff": (1.0, 9.0),
        "rate": "7/s",
        "groups": "fair",
        "group_rate": "7/s",
    }
    needs = {
        "dead_ttl": {"dead": "d"}, "burst": {"rate": "7/s"}, "group_burst": {"group_rate": "7/s"},
    }.get(name, {})  # fmt: skip
    without = Policy("q", **needs)  # type: ignore[arg-type]
    assert sentences(Policy("q", **needs, **{name: some.get(name, 7)})) != sentences(without)  # type: ignore[arg-type]
