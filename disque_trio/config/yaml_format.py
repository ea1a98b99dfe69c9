"""YAML syntax: reading a mapping of settings.

Converts values in YAML to the words that the types take. It works on the nodes that PyYAML composes
and on the text of their scalars: nobody wants what YAML would make of ``0700`` or ``1_000``, so
those are read (or refused) like the same words in disque.conf. Only booleans are taken as YAML
understands them. ``yaml_edit`` writes.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from disque_trio.config.edits import Setting
from disque_trio.config.errors import BadValue, ConfigError
from disque_trio.config.params import Param, Table
from disque_trio.config.types import OutputLimit, Renames, UserLines
from disque_trio.config.words import split_words

_TRUE = ("yes", "true", "on")
_BOOL_TAG = "tag:yaml.org,2002:bool"
_NULL_TAG = "tag:yaml.org,2002:null"
_LIMIT_KEYS = ["hard", "soft", "seconds"]


def line_of(node: Node) -> int:
    """Return the line a node begins on, from 1."""
    return int(node.start_mark.line) + 1


def compose(text: str, file: str) -> MappingNode | None:
    """Return the top mapping of a YAML text, None if it is empty.

    Raises ``ConfigError`` for text that is not YAML, and for YAML that cannot be edited in place.
    """
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            reason = _not_editable(event)
            if reason is not None:
                line = None if event.start_mark is None else event.start_mark.line + 1
                raise ConfigError(reason, file=file, line=line)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        raise ConfigError(f"not valid YAML: {error.problem}", file=file, line=line) from error
    except RecursionError as error:
        raise ConfigError("not valid YAML: nested too deeply", file=file) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            "not valid YAML: special characters are not allowed", file=file, line=line
        ) from error
    if root is None:
        return None
    if not isinstance(root, MappingNode):
        raise ConfigError(
            "expected a mapping of settings (name: value)", file=file, line=line_of(root)
        )
    return root


def _not_editable(event: yaml.Event) -> str | None:
    if getattr(event, "anchor", None):
        return "anchors and aliases are not supported here"
    if isinstance(event, yaml.ScalarEvent) and event.style in ("|", ">"):
        return "block text (| and >) is not supported here: put the value on one line"
    return None


def read_yaml(text: str, file: str, table: Table, errors: list[ConfigError]) -> list[Setting]:
    """Return the settings of a file in YAML; errors are appended to ``errors``."""
    try:
        root = compose(text, file)
    except ConfigError as error:
        errors.append(error)
        return []
    settings = []
    seen: dict[str, int] = {}
    for key, value in root.value if root else []:
        line = line_of(key)
        if not isinstance(key, ScalarNode):
            errors.append(ConfigError("expected the name of a setting", file=file, line=line))
            continue
        name = key.value.lower()
        if name in seen:
            reason = f"given twice, first on line {seen[name]}"
            errors.append(ConfigError(reason, file=file, line=line, setting=name))
            continue
        seen[name] = line
        param = table.get(name)
        if param is None:
            settings.append(Setting(name, [], file, line))
            continue
        is_renames = isinstance(param.type, Renames)
        try:
            if is_renames:
                settings.extend(_renames(name, value, file))  # including those before a bad one
            elif isinstance(param.type, UserLines):
                settings.extend(_users(name, value, file))
            else:
                settings.append(Setting(name, words_of(param, value), file, line_of(value)))
        except BadValue as error:
            expected = param.type.expected
            wanted = 'a mapping of OLD: NEW, or OLD: ""' if is_renames else expected
            errors.append(
                ConfigError(
                    f"expected {wanted}, got {error.reason}",
                    file=file,
                    line=line_of(value),
                    setting=name,
                    expected=expected,
                )
            )
    # Position means nothing in a mapping: included files come first, the file's own settings win.
    return sorted(settings, key=lambda setting: setting.name != "include")


def words_of(param: Param, node: Node) -> list[str]:
    """Return the words of a value. Raises ``BadValue``, whose reason says what is there instead."""
    if isinstance(node, ScalarNode):
        word = _scalar(node)
        if param.type.boolean and node.tag == _BOOL_TAG:
            return ["yes" if word.lower() in _TRUE else "no"]
        return param.split(word)
    return [leaf.value for leaf in leaves_of(param, node)]


def leaves_of(param: Param, node: Node) -> list[ScalarNode]:
    """Return the scalars of a list or mapping in the order of the words; raises ``BadValue``."""
    if isinstance(node, SequenceNode) and param.type.listed:
        leaves = node.value
    elif isinstance(node, MappingNode) and isinstance(param.type, OutputLimit):
        leaves = _limit_leaves(node)
    else:
        raise BadValue(_kind(node))
    for leaf in leaves:
        _scalar(leaf)
    return list(leaves)


def _limit_leaves(node: MappingNode) -> list[Node]:
    """Read ``normal: {hard: 1gb, soft: 256mb, seconds: 60}``."""
    if len(node.value) != 1 or not isinstance(node.value[0][1], MappingNode):
        raise BadValue("something else than one class with hard, soft and seconds")
    name, limits = node.value[0]
    found = {_scalar(key): value for key, value in limits.value}
    if len(limits.value) != len(found) or sorted(found) != sorted(_LIMIT_KEYS):
        raise BadValue("something else than hard, soft and seconds, each once")
    return [name, *(found[key] for key in _LIMIT_KEYS)]


def _renames(name: str, node: Node, file: str) -> Iterator[Setting]:
    """Read ``OLD: NEW`` pairs, one setting each. Raises ``BadValue`` after the good ones."""
    if not isinstance(node, MappingNode):
        raise BadValue(_kind(node))
    commands = set()
    for old, new in node.value:
        yield Setting(name, [_scalar(old), _scalar(new)], file, line_of(old))
        commands.add(_scalar(old).lower())
    if len(commands) != len(node.value):
        raise BadValue("a command twice")


def _users(name: str, node: Node, file: str) -> Iterator[Setting]:
    """Read one line, a list of lines, or ``NAME: RULES`` pairs. Raises ``BadValue`` after the good
    ones."""
    if isinstance(node, MappingNode):
        lines = [(key, [_scalar(key), *_words(rules)]) for key, rules in node.value]
    else:
        leaves = node.value if isinstance(node, SequenceNode) else [node]
        lines = [(leaf, _words(leaf)) for leaf in leaves]
    for leaf, words in lines:
        yield Setting(name, words, file, line_of(leaf))


def _words(node: Node) -> list[str]:
    """The words of a line of rules. Raises ``BadValue``."""
    try:
        return split_words(_scalar(node))
    except ValueError as error:
        raise BadValue(str(error)) from error


def _scalar(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        raise BadValue(_kind(node))
    if node.tag == _NULL_TAG:
        raise BadValue('nothing (write "" for an empty text)')
    return str(node.value)


def _kind(node: Node) -> str:
    if isinstance(node, SequenceNode):
        return "a list"
    return "a mapping" if isinstance(node, MappingNode) else f"{node.value!r}"
