"""YAML syntax: editing a file for CONFIG REWRITE.

PyYAML tells where every node begins and ends in the text. Only those spans are replaced, so
comments, order, indentation and quoting of everything else stay as they are, to the byte. The same
applies inside a list or a mapping: its items are edited one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from disque_trio.config.edits import GENERATED, Change
from disque_trio.config.errors import ConfigError
from disque_trio.config.params import Param
from disque_trio.config.words import in_double_quotes, join_words
from disque_trio.config.yaml_format import compose, leaves_of, line_of

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(?: [A-Za-z0-9_.-]+)*")
_NULL = ("null", "Null", "NULL")
# Between the end of an item and the next dash or comma there may be comments.
_DASH = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*(-)")
_COMMA = re.compile(r"(?:\s|(?<=\s)#[^\n]*)*(,)")


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


def edit_yaml(text: str, changes: Sequence[Change], file: str) -> str:
    """Apply the changes to the text. Raises ``ConfigError`` if the file cannot be edited."""
    root = compose(text, file)
    if root is not None and root.flow_style:
        raise ConfigError(
            "cannot rewrite settings in braces: put each on a line of its own",
            file=file,
            line=line_of(root),
        )
    editor = _Editor(text, root)
    for change in changes:
        editor.change(change)
    return editor.result()


def quote_yaml(word: str, *, always: bool = False) -> str:
    """Return a scalar: plain if that is safe everywhere, otherwise in double quotes."""
    if not always and _PLAIN.fullmatch(word) and word not in _NULL:
        return word
    return in_double_quotes(word, _unicode_escape)


def _unicode_escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Editor:
    """Collects edits of one text."""

    def __init__(self, text: str, root: MappingNode | None) -> None:
        self.text = text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.end = len(text) if root is None else root.end_mark.index
        self.indent = "" if root is None else " " * root.start_mark.column
        self.nodes: dict[str, tuple[Node, Node]] = {
            key.value.lower(): (key, value) for key, value in (root.value if root else ())
        }
        self.edits: list[_Edit] = []
        self.added: list[str] = []

    def result(self) -> str:
        if self.added:
            lines = self.added
            if not any(line.strip() == GENERATED for line in self.text.splitlines()):
                lines = [GENERATED, *lines]
            # On a line of its own, even if the file's last line has no line end.
            before = self.newline if self.text[: self.end].rstrip(" ")[-1:] not in "\n" else ""
            body = "".join(self.indent + line + self.newline for line in lines)
            self.edits.append(_Edit(self.end, self.end, before + body))
        pieces = []
        at = 0
        for start, end, replacement in sorted(self.edits, key=attrgetter("start")):
            pieces += [self.text[at:start], replacement]
            at = end
        return "".join([*pieces, self.text[at:]])

    def change(self, change: Change) -> None:
        param = change.param
        key, value = self.nodes.get(param.name, (None, None))
        if param.type.whole:
            if change.at is None:
                self.replace_whole(param, key, value, change.lines)
        elif key is None or value is None:
            self.add(param, change.lines)
        elif param.type.adds_up:
            last = value.value[-1][1] if value.value else None
            self.insert(value, last, [_pair(old, new) for old, new in change.lines])
        elif change.lines:
            self.replace(param, key, value, change.lines[0])
        elif not self.remove_line(key, value):
            self.replace(param, key, value, param.type.words(param.default_value()))

    def add(self, param: Param, lines: Sequence[Sequence[str]]) -> None:
        if param.type.adds_up:
            self.added.append(f"{param.name}:")
            self.added += [f"  {_pair(old, new)}" for old, new in lines]
        else:
            self.added.append(f"{param.name}: {_value(param, lines[0])}")

    def replace(self, param: Param, key: Node, value: Node, words: Sequence[str]) -> None:
        if isinstance(value, ScalarNode):
            self.span(value, _value(param, words))
            return
        leaves = leaves_of(param, value)
        if list(words) == [""]:
            words = []
        for leaf, word in zip(leaves, words, strict=False):
            if leaf.value != word:
                self.span(leaf, quote_yaml(word))
        for index in range(len(words), len(leaves)):
            self.remove_item(value, leaves[index], leaves[index - 1] if index else None)
        if not words and not _in_flow(value):
            colon = self.text.index(":", key.end_mark.index) + 1
            self.edits.append(_Edit(colon, colon, " []"))
        if len(words) > len(leaves):
            dash = "" if _in_flow(value) else "- "
            items = [dash + quote_yaml(word) for word in words[len(leaves) :]]
            self.insert(value, leaves[-1] if leaves else None, items)

    def replace_whole(
        self, param: Param, key: Node | None, value: Node | None, lines: Sequence[Sequence[str]]
    ) -> None:
        """Write ``lines`` as a list, in one line, in place of the current value."""
        items = ", ".join(in_double_quotes(join_words(line), _unicode_escape) for line in lines)
        if key is None or value is None:
            if lines:
                self.added.append(f"{param.name}: [{items}]")
            return
        colon = self.text.index(":", key.end_mark.index) + 1
        self.edits.append(_Edit(colon, _end_of(value), f" [{items}]"))

    def span(self, node: Node, text: str) -> None:
        self.edits.append(_Edit(node.start_mark.index, node.end_mark.index, text))

    def insert(self, parent: Node, last: Node | None, items: Sequence[str]) -> None:
        """Add items after the last one of a list or mapping."""
        if last is None:
            at = parent.end_mark.index - 1  # before the closing bracket
            text = ", ".join(items)
        elif _in_flow(parent):
            at = last.end_mark.index
            text = "".join(f", {item}" for item in items)
        else:
            # After the comment on the last item's line, in the same column.
            at = self.line_end(last.end_mark.index)
            before = self.newline + " " * parent.start_mark.column
            text = "".join(before + item for item in items)
        self.edits.append(_Edit(at, at, text))

    def remove_item(self, parent: Node, item: Node, previous: Node | None) -> None:
        """Remove an item of a list; a comment beside it stays."""
        start, end = item.start_mark.index, item.end_mark.index
        if _in_flow(parent):
            self.edits.append(_Edit(start, end, ""))
            if comma := _COMMA.match(self.text, end):
                self.edits.append(_Edit(comma.start(1), comma.end(1), ""))
            return
        dash = parent.start_mark.index
        if previous is not None and (found := _DASH.match(self.text, previous.end_mark.index)):
            dash = found.start(1)
        line_end = self.line_end(end)
        if self.text[dash + 1 : start].strip():
            self.edits += [_Edit(dash, dash + 1, ""), _Edit(start, end, "")]
        elif self.text[end:line_end].strip():
            self.edits.append(_Edit(dash, end, ""))
        else:
            line_start = self.text.rfind("\n", 0, dash) + 1
            self.edits.append(_Edit(line_start, self.after_line(line_end), ""))

    def remove_line(self, key: Node, value: Node) -> bool:
        """Remove a setting that has a line to itself; return whether that was possible."""
        end = value.end_mark.index
        line_end = self.line_end(end)
        if key.start_mark.line != value.end_mark.line or self.text[end:line_end].strip():
            return False
        line_start = self.text.rfind("\n", 0, key.start_mark.index) + 1
        self.edits.append(_Edit(line_start, self.after_line(line_end), ""))
        return True

    def line_end(self, index: int) -> int:
        """Return where the line with this index ends, before its line break."""
        found = re.compile(r"\r?\n|\Z").search(self.text, index)
        return len(self.text) if found is None else found.start()

    def after_line(self, line_end: int) -> int:
        found = re.compile(r"\r?\n").match(self.text, line_end)
        return line_end if found is None else found.end()


def _pair(old: str, new: str) -> str:
    return f"{quote_yaml(old)}: {quote_yaml(new)}"


def _end_of(node: Node) -> int:
    """Return where the text of a value ends; for a block, before the empty lines after it."""
    if not isinstance(node, CollectionNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end_of(last[1] if isinstance(last, tuple) else last)


def _in_flow(node: Node) -> bool:
    return isinstance(node, CollectionNode) and bool(node.flow_style)


def _value(param: Param, words: Sequence[str]) -> str:
    if param.type.listed:
        items = [quote_yaml(word) for word in words if word]
        return f"[{', '.join(items)}]"
    return quote_yaml(" ".join(words), always=param.type.quoted)
