"""The line editor of the prompt: history, completion and argument hints, with prompt-toolkit."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.output import Output
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style

from disque_trio.cli import hints
from disque_trio.cli.commandtable import CommandTable
from disque_trio.cli.repl import Repl

_OWN_COMMANDS = ("help", "clear", "quit", "exit")
_STYLE = Style.from_dict({"hint": "ansibrightblack"})


def line_reader(
    repl: Repl, input: Input | None = None, output: Output | None = None
) -> Callable[[str], str]:
    """Returns a function that shows a prompt and lets the user edit a line.

    Args:
        repl: for its command table.
        input: replaces the terminal, for tests.
        output: replaces the terminal, for tests.
    """
    session: PromptSession[str] = PromptSession(
        history=_history(),
        completer=CommandCompleter(repl),
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,
        input_processors=[_HintProcessor(repl)],
        style=_STYLE,
        input=input,
        output=output,
    )
    return lambda text: session.prompt(text)


def hint_for(table: CommandTable, line: str) -> str:
    """The grey text after a line: the remaining arguments."""
    words = line.split()
    if len(words) > 1 and words[0].isdigit():
        words = words[1:]
    if not words or words[0].lower() not in table:
        return ""
    doc = table[words[0].lower()]
    rest = hints.hint(doc.syntax, words[1:])
    return rest if not rest or line[-1:].isspace() else " " + rest


class CommandCompleter(Completer):
    """Completes command names, and the words of the command's syntax after them."""

    def __init__(self, repl: Repl) -> None:
        self._repl = repl

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Completions of the word before the cursor, in the case in which it is typed."""
        before = document.text_before_cursor
        words = before.split()
        current = "" if not words or before[-1:].isspace() else words.pop()
        if words and words[0].isdigit():
            words = words[1:]
        for candidate in self._candidates([word.lower() for word in words]):
            if candidate.lower().startswith(current.lower()):
                shown = candidate.upper() if _is_upper(current, candidate) else candidate.lower()
                yield Completion(shown, start_position=-len(current))

    def _candidates(self, words: list[str]) -> list[str]:
        table = self._repl.table
        if not words:
            return sorted([*table, *_OWN_COMMANDS])
        if words[0] == "help":
            groups = {f"@{doc.group}" for doc in table.values() if doc.group}
            return [*sorted(groups), *sorted(table)] if len(words) == 1 else []
        doc = table.get(words[0])
        return [] if doc is None else hints.words(doc.syntax, words[1:])


def _is_upper(current: str, candidate: str) -> bool:
    return current.isupper() if current else candidate.isupper()


class _HintProcessor(Processor):
    def __init__(self, repl: Repl) -> None:
        self._repl = repl

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        document = transformation_input.document
        fragments = transformation_input.fragments
        # An entered line stays on the screen as typed.
        if document.is_cursor_at_the_end and not get_app().is_done:
            hint = hint_for(self._repl.table, document.text)
            if hint:
                fragments = [*fragments, ("class:hint", hint)]
        return Transformation(fragments)


class _DiscreetHistory(FileHistory):
    """A history without passwords."""

    def store_string(self, string: str) -> None:
        if string.split()[:1] not in (["auth"], ["AUTH"]):
            super().store_string(string)


def _history() -> History:
    path = os.environ.get("DISQUECLI_HISTFILE")
    if path is None:
        path = str(Path("~/.disquecli_history").expanduser())
    # Otherwise a failure to write the history would end the prompt.
    if path == os.devnull or not os.access(Path(path).parent, os.W_OK):
        return InMemoryHistory()
    return _DiscreetHistory(path)
