"""What a visitor and the audit are told after an action."""

from disque_console.model.action import Action, Form, Order
from disque_console.model.actions import ACTIONS
from disque_console.model.outcome import ActionReplies
from disque_trio.overview.names import quoted
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ConnectionLost, ReplyError, reply_error

NODE = "127.0.0.1:7711"
JOBS = [quoted(f"D-aaaaaaaa-{number:024d}-05a1@{NODE}") for number in range(3)]
LATE = reply_error("NOREPL Timeout reached before all nodes that hold the job had the change")


def outcome(action: Action, form: Form, *replies: Reply) -> ActionReplies:
    """The outcome of an action whose commands have these replies."""
    found = ActionReplies()
    for order, reply in zip(action.make(form), replies, strict=True):
        found.hear(order, NODE, reply)
    return found


def test_a_change_that_some_nodes_have_not_confirmed_is_done() -> None:
    action, form = ACTIONS["job-move"], Form({"job": JOBS, "to": ["t"]})
    found = outcome(action, form, b"OK", LATE, LATE)
    assert (found.result, found.problems, found.unconfirmed) == ("done", [], 2)
    assert found.says(action, form) == (
        "3 jobs moved to t. For 2 jobs, some nodes have not confirmed this: they are told again."
    )
    found = outcome(action, form, b"OK", LATE, ReplyError("DELIVERED", "a worker has it."))
    assert found.result == "partly done"
    assert found.says(action, form) == (
        "2 jobs moved to t. For 1 job, some nodes have not confirmed this: they are told again. "
        f"Partly failed: {NODE}: DELIVERED a worker has it."
    )


def test_a_changed_letter_is_sent_back_though_some_nodes_have_not_confirmed_the_change() -> None:
    fields = {"job": JOBS[:1], "queue": ["dead"], "body": ["new"], "then": ["redrive"]}
    action, form = ACTIONS["job-edit"], Form(fields)
    found = outcome(action, form, LATE, 1)
    assert found.says(action, form).startswith("The job has been changed. The dead letter was sent")


def test_a_job_that_has_too_few_copies_was_not_added() -> None:
    action, form = ACTIONS["add"], Form({"queue": ["q"], "body": ["x"]})
    found = outcome(action, form, reply_error("NOREPL Not enough reachable nodes"))
    assert (found.result, found.unconfirmed) == ("failed", 0)
    assert found.says(action, form) == f"Not done: {NODE}: NOREPL Not enough reachable nodes."


def test_all_jobs_of_a_topic_are_named_and_why_some_are_missing() -> None:
    action, form = ACTIONS["add"], Form({"queue": [quoted("@news")], "body": ["x"]})
    assert outcome(action, form, [b"D-1", b"D-2"]).says(action, form) == "Added D-1, D-2."
    found = outcome(action, form, [b"D-1", reply_error("MAXLEN Queue is full"), b"D-2"])
    assert found.result == "partly done"
    assert found.says(action, form) == (
        f"Added D-1, D-2. Partly failed: {NODE}: MAXLEN Queue is full."
    )
    found = outcome(action, form, [])
    assert (found.result, found.says(action, form)) == (
        "done", "Added no job: no queue is bound to @news."
    )  # fmt: skip


def test_equal_problems_are_counted() -> None:
    found = ActionReplies()
    for _ in range(2):
        found.hear(Order(("PING",)), "", ConnectionLost("it broke", maybe_executed=True))
    assert found.problems == ["it broke (it may have been done anyway) (2 times)"]
