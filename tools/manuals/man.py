"""Man pages: one for each command, including its subcommands."""

from collections.abc import Iterator, Sequence

from tools.manuals.described import Command, Option

_SERVERS = ("disque-server", "bananaq", "disque-console")
_ALL = (
    "disque disque-server disque-worker disque-outbox disque-pipeline disque-check-aof "
    "disque-console bananaq bananaq-check-aof pressure"
)


def section(name: str) -> int:
    """The section of the manual for a command: 8 for servers, else 1."""
    return 8 if name in _SERVERS else 1


def page(command: Command, version: str) -> str:
    """The man page of a command, in the macros of man(7)."""
    name = command.name
    others = [other for other in _ALL.split() if other != name]
    lines = [
        f'.TH {_quoted(name.upper())} {section(name)} "" {_quoted(f"disque-trio {version}")}',
        ".SH NAME",
        f"{_text(name)} \\- {_text(command.about)}",
        ".SH SYNOPSIS",
        *_synopsis(command),
    ]
    if command.text.strip():
        lines += [".SH DESCRIPTION", *_as_it_stands(command.text)]
    lines += _options(command, ".SH")
    if command.commands:
        lines.append(".SH COMMANDS")
        for below in command.commands:
            about = below.about[:1].upper() + below.about[1:]
            lines += [f".SS {_quoted(below.name)}", _text(about) + "."]
            lines += _synopsis(below)
            if below.text.strip():
                lines += [".PP", *_as_it_stands(below.text)]
            lines += _options(below, "", command.options)
    lines.append(".SH SEE ALSO")
    lines.append(", ".join(f"\\fB{_text(other)}\\fR({section(other)})" for other in others))
    return "\n".join(lines) + "\n"


def _synopsis(command: Command) -> Iterator[str]:
    first = command.name.split()[0]
    for line in command.synopsis:
        yield ".nh"
        yield ".HP"
        yield _text(line).replace(_text(first), f"\\fB{_text(first)}\\fR", 1)
        yield ".hy"


def _options(command: Command, heading: str, known: Sequence[Option] = ()) -> Iterator[str]:
    """The operands, and the options that are not ``known``. ``heading``: the macro for headings, or
    empty for none."""
    if command.operands:
        if heading:
            yield f"{heading} OPERANDS"
        for operand in command.operands:
            yield from _option(operand)
    named = {option.names for option in known}
    for group in command.groups:
        if heading:
            yield f"{heading} {_quoted(group.title.upper())}"
            if group.intro:
                yield _text(group.intro)
        for option in group.options:
            if option.names not in named:
                yield from _option(option)


def _option(option: Option) -> Iterator[str]:
    names = ", ".join(f"\\fB{_text(name)}\\fR" for name in option.names)
    value = f"\\fI{_text(option.value)}\\fR" if option.value else ""
    yield ".TP"
    yield " ".join(filter(None, (names, value)))
    yield _text(option.help) or "\\&"


def _as_it_stands(text: str) -> Iterator[str]:
    """Paragraphs; indented ones, and those with short lines, keep their line breaks."""
    for number, paragraph in enumerate(text.strip("\n").split("\n\n")):
        lines = paragraph.splitlines()
        keep = any(line.startswith("  ") for line in lines)
        if number:
            yield ".PP"
        if keep:
            yield ".nf"
        yield from (_text(line) or "\\&" for line in lines)
        if keep:
            yield ".fi"


def _text(text: str) -> str:
    """Text escaped for troff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti")
    text = text.replace("^", "\\(ha").replace("`", "\\(ga")
    return "\\&" + text if text.startswith((".", "'")) else text


def _quoted(text: str) -> str:
    return '"' + _text(text).replace('"', "\\(dq") + '"'
