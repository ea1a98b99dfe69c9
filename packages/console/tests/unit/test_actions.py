"""The table of actions: forms become commands."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from disque_console.io.calls import LIMIT
from disque_console.model.action import TOGETHER, Form, Order, Where, batches
from disque_console.model.actions import ACTIONS, ADD_TIMEOUT
from disque_console.model.fields import field_value
from disque_console.model.policy_actions import escape_pattern, fields_of
from disque_console.model.roles import Role
from disque_trio.client import Policy
from disque_trio.config.words import join_words
from disque_trio.overview.names import quoted, shown, to_bytes, unquoted
from disque_trio.policy_options import OPTIONS

ODD = "a b/ü\udcff*"


def commands(action: str, **fields: str) -> list[tuple[object, ...]]:
    form = Form({name.replace("_", "-"): [value] for name, value in fields.items()})
    return [order.command for order in ACTIONS[action].make(form)]


def test_names_survive_addresses_and_forms_whatever_bytes_they_have() -> None:
    for name in (ODD, "\x00", "%41", "", "日本", "\udc80\udcff"):
        assert unquoted(quoted(name)) == name
        assert quoted(name).isascii()
    assert to_bytes(ODD) == b"a b/\xc3\xbc\xff*"


def test_invisible_characters_in_names_are_escaped() -> None:
    assert shown("a\u202eb\udcff\r\n") == "a\\u202eb\\xff\\x0d\\x0a"
    assert shown("für <b>日本") == "für <b>日本"


def in_a_field(text: str) -> str:
    """Return what a browser sends for a field of one line that nobody touched."""
    return field_value(text).replace("\r", "").replace("\n", "")


@pytest.mark.parametrize("was", [ODD, " d\udcff\udcfe ", "a\r\nb", "\x00", "trail "])
def test_names_that_nobody_touched_stay_as_they_were(was: str) -> None:
    shown = in_a_field(was)
    form = {"dead": [shown], "dead-was": [quoted(was)], "policy": ["q"]}
    [order] = ACTIONS["policy"].make(Form(form))
    assert order.command[order.command.index("DEAD") + 1] == to_bytes(was)
    [order] = ACTIONS["policy"].make(Form({**form, "dead": [" other "]}))
    assert order.command[order.command.index("DEAD") + 1] == b"other"
    [order] = ACTIONS["policy"].make(Form({**form, "dead": [""]}))
    assert order.command[order.command.index("DEAD") + 1] == b""
    fields = {"name": [shown], "name-was": [quoted(was)], "times": ["@daily"], "queue": ["q"]}
    [order] = ACTIONS["cron-set"].make(Form(fields))
    assert order.command[2] == to_bytes(was)
    options = join_words(("HEADERS", "1", "kind", was))
    [order] = ACTIONS["cron-set"].make(
        Form({**fields, "options": [in_a_field(options)], "options-was": [quoted(options)]})
    )
    assert order.command[6:] == (b"HEADERS", b"1", b"kind", to_bytes(was))


def test_a_pause_goes_to_every_node_and_replaces_the_previous_one() -> None:
    form = Form({"queue": [quoted(ODD)], "direction": ["in"]})
    [order] = ACTIONS["pause"].make(form)
    assert order.command == ("PAUSE", to_bytes(ODD), "none", "in", "bcast")
    assert order.where is Where.EVERY
    assert commands("resume", queue="q") == [("PAUSE", b"q", "none", "bcast")]


def test_a_job_is_added_with_the_fields_of_the_form() -> None:
    [command] = commands(
        "add",
        queue="q",
        body="line\r\nline",
        delay="0.5",
        retry="",
        priority="7",
        group="g",
        maxlen="9",
        headers="a: b\nc:d",
    )
    assert command == (
        *("ADDJOB", b"q", b"line\nline", ADD_TIMEOUT, "DELAY", "0.5", "MAXLEN", "9"),
        *("PRIORITY", "7", "GROUP", b"g"),
        *("HEADERS", 2, b"a", b"b", b"c", b"d"),
    )


def test_a_node_says_why_a_job_was_not_added_before_the_console_gives_up() -> None:
    assert ADD_TIMEOUT <= (LIMIT - 1) * 1000


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("add", {"queue": "q", "retry": "soon"}),
        ("add", {"queue": "q", "ttl": "-1"}),
        ("add", {"queue": "q", "ttl": "0"}),
        ("add", {"queue": "q", "delay": "nan"}),
        ("add", {"queue": "q", "headers": "no colon"}),
        ("add", {"body": "x"}),
        ("pause", {"queue": "q", "direction": "sideways"}),
        ("move", {"queue": "q", "to": " "}),
        ("policy", {"policy": "q", "backoff_min": "1"}),
        ("policy", {"policy": "q", "groups": "lifo"}),
    ],
)
def test_an_invalid_form_becomes_no_command(action: str, fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        commands(action, **fields)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *(("retry", text) for text in ("1_0", "\u0663", "1.5", "0x1", "1 0")),
        *(("delay", text) for text in ("1_0.5", "\u0663.5", "inf", "1e3", "1.", "1.5_0")),
    ],
)
def test_a_number_that_a_node_would_not_read_is_refused(field: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: .* is not a number$"):
        commands("add", queue="q", **{field: text})


def test_a_policy_sends_all_options_so_that_empty_fields_unset_them() -> None:
    [command] = commands(
        "policy", policy="q", attempts="3", dead="d", backoff_min="1", backoff_max="60"
    )
    words = dict(pairwise(command))
    assert words["ATTEMPTS"] == "3"
    assert words["DEAD"] == b"d"
    assert words["TTL"] == b""
    assert command[command.index("BACKOFF") + 1 :][:2] == ("1", "60")
    assert {option.word for option in OPTIONS} <= set(command)


POLICIES = st.builds(
    Policy,
    st.just("q"),
    dead=st.none() | st.text(st.characters(codec="utf-8"), min_size=1),
    backoff=st.none() | st.tuples(st.floats(0.001, 1e9), st.floats(0.001, 1e9)),
    rate=st.sampled_from([None, "50/s", "300/m"]),
    groups=st.sampled_from([None, "fair", "fifo"]),
    **{
        name: st.none() | st.integers(1, 1 << 40)
        for name in ("attempts", "dead_ttl", "ttl", "retry", "replicate", "maxlen", "maxbytes")
    },
)


def of_a_page(policy: Policy) -> dict[str, list[str]]:
    """Return what a browser sends for the form of ``policy`` that nobody touched."""
    form = {"policy": ["q"], "edits": ["yes"]}
    for name, value in fields_of(policy).items():
        form |= {name: [in_a_field(value)], f"{name}-was": [quoted(value)]}
    return form


@given(POLICIES)
@example(Policy("q", dead="failed.1.0"))
def test_only_the_changed_options_of_a_policy_are_sent(policy: Policy) -> None:
    form = of_a_page(policy)
    with pytest.raises(ValueError, match="nothing to change"):
        ACTIONS["policy"].make(Form(form))
    [order] = ACTIONS["policy"].make(Form({**form, "active": ["7"], "rate": ["9/h"]}))
    assert order.command == ("QSET", b"q", "RATE", "9/h", "ACTIVE", "7")
    changed = {**form, "backoff-min": ["4"], "backoff-max": ["60"]}
    [order] = ACTIONS["policy"].make(Form(changed))
    assert order.command == ("QSET", b"q", "BACKOFF", "4", "60")
    del form["edits"]  # made from the policy of a pattern, for a queue that has none of its own
    [order] = ACTIONS["policy"].make(Form(form))
    words = dict(pairwise(order.command))
    assert words["DEAD"] == to_bytes(policy.dead or "")
    assert words["TTL"] == (str(policy.ttl) if policy.ttl else b"")
    assert set(words) >= {"ATTEMPTS", "DEADTTL", "MAXLEN", "BURST", "RATE", "GROUPS", "BACKOFF"}


def test_a_policy_for_one_queue_is_not_a_pattern() -> None:
    assert escape_pattern("a*b[c]?\\") == "a\\*b\\[c]\\?\\\\"
    assert escape_pattern("plain") == "plain"


def test_dangerous_actions_ask_first_and_no_action_is_for_viewers() -> None:
    for action in ACTIONS.values():
        assert action.role > Role.VIEWER
        assert action.asks or not action.danger
    form = Form({"queue": ["q"]})
    assert ACTIONS["purge"].says(form, [1]) == "Cancelled 1 job in q."
    assert ACTIONS["purge"].says(form, [1200, 34]) == "Cancelled 1,234 jobs in q."


@pytest.mark.parametrize(
    ("action", "fields", "question"),
    [
        ("redrive", {}, "Send dead letters from q back? q has 23 jobs now."),
        ("redrive", {"count": "4"}, "Send dead letters from q back, at most 4? q has 23 jobs now."),
        ("redrive", {"to": " t "}, "Send dead letters from q back to t? q has 23 jobs now."),
        ("move", {"to": "t"}, "Move queued jobs from q to t? q has 23 jobs now."),
        (
            "move",
            {"to": "t", "count": "4000"},
            "Move queued jobs from q to t, at most 4,000? q has 23 jobs now.",
        ),
    ],
)
def test_the_question_names_the_target_and_the_limit(
    action: str, fields: dict[str, str], question: str
) -> None:
    asks = ACTIONS[action].asks
    assert asks is not None
    form = {name: [value] for name, value in fields.items()}
    assert asks(Form({"queue": ["q"], **form}, 23)) == question


def test_orders_for_one_node_go_together_unless_one_needs_the_others() -> None:
    def order(where: Where | str, needs: bool = False) -> Order:
        return Order(("PING",), where, needs=needs)

    orders = [order("a"), order("a"), order("b"), order("a"), order("a", needs=True), order("a")]
    orders += [order(Where.ANY), order(Where.ANY), order(Where.EVERY), *[order("c")] * TOGETHER]
    found = list(batches([*orders, order("c")]))
    assert [len(batch) for batch in found] == [2, 1, 1, 2, 1, 1, 1, TOGETHER, 1]
    assert [order for batch in found for order in batch] == [*orders, order("c")]
    assert list(batches([])) == []
