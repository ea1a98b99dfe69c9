"""Completions for bash, zsh and fish: options, choices, subcommands, and otherwise file names."""

from collections.abc import Iterator

from tools.manuals.described import Command, Option

# The names of values that are files or directories.
_FILES = {"FILE", "DIR", "PATH", "OUT", "OUTPUT", "HTML", "JSON", "PAGE", "ARCHIVE", "AOF", "AUDIT"}
_FILES |= {"file", "dir", "socket"}
_MADE = "Generated from the command's help by `make deb`."


def bash(command: Command) -> str:
    """The completion for bash, to be sourced."""
    name = command.name
    function = "_" + name.replace("-", "_")
    words = "|".join(_last(below) for below in command.commands)
    lines = [
        f"# Completion of {name} for bash. {_MADE}",
        f"{function}() {{",
        "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}",
        "    local command= words= word",
        "    COMPREPLY=()",
    ]
    if words:
        lines += [
            '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            f"        case $word in {words}) command=$word; break ;; esac",
            "    done",
        ]
    elif operands := _operands(command):
        # The words after it are the operand's own.
        lines += [
            '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            f"        case $word in {'|'.join(operands)}) return ;; esac",
            "    done",
        ]
    lines.append('    case "$command $previous" in')
    for below in (command, *command.commands):
        at = "" if below is command else _last(below)
        lines += _bash_values(below.options, at)
    lines += ["    esac", '    case "$command $current" in']
    for below in (*command.commands, command):
        at = "*" if below is command else _last(below)
        names = " ".join(name for option in below.options for name in option.names)
        lines.append(f'        {at}" -"*) words="{names}" ;;')
        lines.append(f'        {at or "*"}" "*) words="{" ".join(_operands(below))}" ;;')
    lines += [
        "    esac",
        '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")',
        "}",
        f"complete -o bashdefault -o default -F {function} {name}",
    ]
    return "\n".join(lines) + "\n"


def _bash_values(options: list[Option], at: str) -> Iterator[str]:
    """After an option with a value: its choices, or names of files, or nothing."""
    files: list[str] = []
    others: list[str] = []
    for option in options:
        names = "|".join(f'"{at} {name}"' for name in option.names)
        if option.choices:
            words = " ".join(option.choices)
            yield f'        {names}) mapfile -t COMPREPLY < <(compgen -W "{words}" -- "$current")'
            yield "            return ;;"
        elif option.value:
            (files if option.value in _FILES else others).append(names)
    if files:
        yield f"        {'|'.join(files)}) return ;;"
    if others:
        yield f"        {'|'.join(others)}) compopt +o bashdefault +o default; return ;;"


def zsh(command: Command) -> str:
    """The completion for zsh, a file ``_NAME`` in ``fpath``."""
    lines = [f"#compdef {command.name}", f"# {_MADE}"]
    if not command.commands:
        lines.append(_arguments(command, []))
        return "\n".join(lines) + "\n"
    words = " ".join(
        _single(f"{_last(below)}:{_zsh_text(below.about)}") for below in command.commands
    )
    lines += [
        "local context state state_descr line",
        "typeset -A opt_args",
        f"local -a commands=({words})",
        _arguments(command, [_single("1:command:->command"), _single("*::argument:->argument")]),
        "case $state in",
        "command) _describe command commands ;;",
        "argument)",
        "    case $line[1] in",
    ]
    for below in command.commands:
        lines += [f"    {_last(below)})", _arguments(below, []), "    ;;"]
    lines += ["    esac", "    ;;", "esac"]
    return "\n".join(lines) + "\n"


def _arguments(command: Command, more: list[str]) -> str:
    specs = [spec for option in command.options for spec in _zsh_option(option)]
    if not command.commands:
        words = _operands(command)
        specs += [_single(f"1:word:({' '.join(words)})")] if words else []
        specs.append(_single("*:file:_files"))
    mode = "-C " if more else ""
    return f"_arguments {mode}\\\n    " + " \\\n    ".join([*specs, *more])


def _zsh_option(option: Option) -> Iterator[str]:
    value = ""
    if option.value:
        action = "_files" if option.value in _FILES else " "  # a space: nothing can be offered
        if option.choices:
            action = f"({' '.join(map(_zsh_text, option.choices))})"
        value = f":{_zsh_text(option.value)}:{action}"
    for name in option.names:
        yield _single(f"{name}[{_zsh_text(_short(option.help))}]{value}")


def _zsh_text(text: str) -> str:
    for special in "\\[]:()":
        text = text.replace(special, "\\" + special)
    return text


def fish(command: Command) -> str:
    """The completion for fish, a file ``NAME.fish``."""
    start = f"complete -c {command.name}"
    lines = [f"# Completion of {command.name} for fish. {_MADE}"]
    top = " -n __fish_use_subcommand" if command.commands else ""
    lines += [f"{start}{top}{_fish_option(option)}" for option in command.options]
    if words := _operands(command) if not command.commands else []:
        lines.append(f"{start} -n __fish_use_subcommand -a {_single(' '.join(words))}")
    for below in command.commands:
        word = _last(below)
        lines.append(f"{start} -f{top} -a {word} -d {_single(below.about)}")
        seen = f" -n {_single(f'__fish_seen_subcommand_from {word}')}"
        lines += [f"{start}{seen}{_fish_option(option)}" for option in below.options]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    names = [f" -l {name[2:]}" if name[:2] == "--" else f" -s {name[1:]}" for name in option.names]
    if option.choices:
        names.append(f" -x -a {_single(' '.join(option.choices))}")
    elif option.value:
        names.append(" -r" if option.value in _FILES else " -x")
    return "".join(names) + f" -d {_single(_short(option.help))}"


def _operands(command: Command) -> list[str]:
    """The possible first operands: subcommands or choices."""
    if command.commands:
        return [_last(below) for below in command.commands]
    return list(command.operands[0].choices) if command.operands else []


def _last(command: Command) -> str:
    return command.name.rpartition(" ")[2]


def _short(help: str) -> str:
    """The first sentence of a help text, to show beside the option."""
    return help.partition(". ")[0].partition("; ")[0].rstrip(".")


def _single(text: str) -> str:
    """Quote with single quotes, for all three shells. Quotes in the text become typographical,
    because fish has different rules for them."""
    return "'" + text.replace("'", "\N{RIGHT SINGLE QUOTATION MARK}") + "'"
