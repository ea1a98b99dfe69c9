"""The table of conditions."""

import re

from disque_trio.health.table import CONDITIONS, NODE, QUEUE, SEVERITIES


def test_every_condition_says_what_it_means_and_what_to_do() -> None:
    for kind, condition in CONDITIONS.items():
        assert kind == condition.kind
        assert re.fullmatch("[a-z]+(-[a-z]+)*", kind)
        assert condition.severity in SEVERITIES
        assert condition.scope in (NODE, QUEUE)
        assert condition.title
        assert not condition.title.endswith(".")
        for text in (condition.cause, condition.cure):
            assert text[:1].isupper() or text.startswith("`")
            assert text.endswith((".", ")."))


def test_every_condition_has_an_alert_of_its_own() -> None:
    alerts = [condition.alert for condition in CONDITIONS.values()]
    assert len(set(alerts)) == len(alerts)
    assert all(re.fullmatch("Disque[A-Za-z]+", alert) for alert in alerts)


def test_what_is_worked_out_from_queues_has_its_own_expression() -> None:
    for condition in CONDITIONS.values():
        if condition.scope == QUEUE:
            assert condition.expr
        if condition.expr:
            assert condition.summary
