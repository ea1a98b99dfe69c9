"""The notation in which commands tell their arguments."""

import pytest

from disque_bananaq.commands.table import build_table as bananaq_table
from disque_trio.node.commands.table import build_table
from disque_trio.syntax import Part, parse

QUEUE = Part("queue")


def parts(syntax: str) -> tuple[Part, ...]:
    """Return the parts of the only alternative."""
    (form,) = parse(syntax)
    return form.parts


def test_arguments_words_and_choices_come_one_after_the_other() -> None:
    number, word, choice = parts("count FROM all|id")
    assert (number, word) == (Part("count"), Part("FROM"))
    assert choice.choices == (Part("all"), Part("id"))
    assert [part.is_word for part in (number, word, choice)] == [False, True, False]


@pytest.mark.parametrize(
    ("syntax", "part"),
    [
        ("queue [queue ...]", Part("queue", repeated=True)),
        ("[queue ...]", Part("queue", optional=True, repeated=True)),
        ("[FULL]", Part("FULL", optional=True)),
        ("[COUNT count]", Part(parts=(Part("COUNT"), Part("count")), optional=True)),
        (
            "[QUEUE queue [QUEUE queue ...]]",
            Part(parts=(Part("QUEUE"), QUEUE), optional=True, repeated=True),
        ),
        (
            "[GROUPS group ...]",
            Part(
                parts=(Part("GROUPS"), Part("group", optional=True, repeated=True)), optional=True
            ),
        ),
        ("name value [name value ...]", Part(parts=(Part("name"), Part("value")), repeated=True)),
        ("key [...]", Part("key", repeated=True)),
        ("count/s|count/m", Part("count/s|count/m")),
    ],
)
def test_brackets_and_dots_say_how_often_something_comes(syntax: str, part: Part) -> None:
    assert parts(syntax) == (part,)


def test_alternatives_begin_with_words_or_are_forms() -> None:
    assert [form.token for form in parse("LIST | GET name | queue")] == ["LIST", "GET", ""]
    assert [form.optional for form in parse("[COUNT | LIST]")] == [True, True]
    assert [form.parts for form in parse("queue id  (okq: queue)")] == [
        (QUEUE, Part("id")),
        (QUEUE,),
    ]
    _, option = parts("queue option [option ...]  (in, out)")
    assert option == Part("option", choices=(Part("in"), Part("out")), repeated=True)


@pytest.mark.parametrize("wrong", ["[a", "a]", "a [b [c]", "[]", "[...]", "A [...]", "a | ", "| a"])
def test_brackets_have_to_match_and_nothing_is_empty(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(wrong)


def test_the_syntax_of_every_command_is_in_the_notation() -> None:
    for table in (build_table(), bananaq_table()):
        for command in table.values():
            assert parse(command.syntax)
