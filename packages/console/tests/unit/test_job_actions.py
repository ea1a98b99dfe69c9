"""Forms about jobs become commands."""

import pytest

from disque_console.model.action import Form, Where, Word
from disque_console.model.actions import ACTIONS
from disque_console.model.job_actions import AT_ONCE, MOST, body_mark, job_value
from disque_trio.overview.names import quoted

HERE, THERE = "127.0.0.1:1", "127.0.0.1:2"


def id(number: int) -> str:
    return f"D-aaaaaaaa-{number:024d}-05a1"


def job(number: int, address: str = HERE) -> str:
    return quoted(job_value(id(number), address))


def made(action: str, **fields: str | list[str]) -> list[tuple[tuple[Word, ...], Where | str]]:
    form = {name: value if isinstance(value, list) else [value] for name, value in fields.items()}
    return [(order.command, order.where) for order in ACTIONS[action].make(Form(form))]


def test_each_node_gets_commands_for_the_jobs_it_listed() -> None:
    jobs = [job(1), job(2, THERE), job(3), job(1)]
    assert made("job-promote", job=jobs) == [
        (("PROMOTE", id(1), id(3)), HERE),
        (("PROMOTE", id(2)), THERE),
    ]


def test_many_jobs_are_split_over_several_commands() -> None:
    orders = made("job-cancel", job=[job(number) for number in range(AT_ONCE + 1)])
    assert [len(command) - 1 for command, _ in orders] == [AT_ONCE, 1]


def test_all_shown_jobs_are_used_if_selected() -> None:
    fields: dict[str, str | list[str]] = {"job": [job(1)], "shown": [job(1), job(2)]}
    assert len(made("job-delete", which="shown", **fields)[0][0]) == 5
    assert len(made("job-delete", which="ticked", **fields)[0][0]) == 4
    form = Form({"which": ["shown"], "shown": [job(1), job(2)]})
    asks = ACTIONS["job-delete"].asks
    assert asks is not None
    assert asks(form).startswith("Delete 2 jobs ")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"job": []},
        {"job": ["x"]},
        {"job": [quoted(id(1) + " BUSYLOOP@" + HERE)]},
        {"job": [job(number) for number in range(MOST + 1)]},
    ],
)
def test_invalid_jobs_are_refused(fields: dict[str, list[str]]) -> None:
    for action in ("job-promote", "job-cancel", "job-delete", "job-nack", "job-redrive"):
        with pytest.raises(ValueError):  # noqa: PT011
            made(action, queue="q", **fields)


def test_an_edit_sends_only_what_was_changed() -> None:
    same = {"job": job(1), "body": "a\r\nb", "mark": body_mark(b"a\nb")}
    assert made("job-edit", **same, ttl="5") == [(("UPDATEJOB", id(1), "TTL", "5"), HERE)]
    with pytest.raises(ValueError, match="nothing"):
        made("job-edit", **same)
    changed = made("job-edit", **same | {"body": "c\r\nd"})
    assert changed == [(("UPDATEJOB", id(1), "BODY", b"c\nd"), HERE)]
    windows = same | {"mark": body_mark(b"a\r\nb"), "ends": "crlf", "delay": "0.5"}
    assert made("job-edit", **windows) == [(("UPDATEJOB", id(1), "DELAY", "0.5"), HERE)]


def test_a_letter_is_only_sent_back_if_it_could_be_changed() -> None:
    fields = {"job": [job(1)], "queue": ["dead"], "body": ["new"], "then": ["redrive"]}
    update, redrive = ACTIONS["job-edit"].make(Form(fields))
    assert update.command == ("UPDATEJOB", id(1), "BODY", b"new")
    assert redrive.command == ("REDRIVE", b"dead", "MATCH", id(1))
    assert (update.needs, redrive.needs) == (False, True)


def test_letters_are_redriven_by_id_wherever_they_are() -> None:
    orders = made("job-redrive", job=[job(1), job(2, THERE)], queue="dead", to="")
    assert orders == [(("REDRIVE", b"dead", "MATCH", id(1), id(2)), Where.ANY)]


def test_a_job_is_nacked_as_its_worker_would() -> None:
    assert made("job-nack", job=job(1), delay="3", reason="a b") == [
        (("NACK", id(1), "DELAY", "3", "REASON", b"a b"), HERE)
    ]
    assert made("job-nack", job=job(1), dead="yes", delay="3") == [(("NACK", id(1), "DEAD"), HERE)]


def test_the_message_says_how_many_of_how_many_were_done() -> None:
    form = Form({"job": [job(1), job(2)]})
    assert ACTIONS["job-cancel"].says(form, [1, 1]) == "2 jobs cancelled."
    assert ACTIONS["job-cancel"].says(form, [1]) == "1 of 2 jobs cancelled."
