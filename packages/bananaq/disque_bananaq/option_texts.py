"""Generates the help and the example file from the table of bananaq's parameters."""

from __future__ import annotations

import textwrap

from disque_bananaq.settings import SECTIONS, TABLE
from disque_trio.config import Param
from disque_trio.config.types import YesNo

_WIDTH = 80

_USAGE = """\
Usage: bananaq [--config FILE] [--name value | --name=value | --switch ...]
       bananaq --example
       bananaq --version
       bananaq -h | --help

Queues of events with consumer groups, for any Redis client.

  bananaq                                  events in this process, on port 4777
  bananaq --store redis --redis-addr redis.example.com:6379
  bananaq --example > bananaq.conf         a file with all settings, to be edited
  bananaq --config bananaq.conf --listen-addr 127.0.0.1:4777

The command line overrides the environment, and that overrides the file:
--listen-addr, or BANANAQ_LISTEN_ADDR (or bananaq_LISTEN_ADDR), or a line
"listen-addr: ..." in the file. The file is YAML, "name: value", with # comments.
A switch without a value means yes.

  --config FILE
      Read this file (or that of BANANAQ_CONFIG). CONFIG REWRITE writes it.
  --example
      Print a file with all settings and their defaults.
  --version
      Print the version.
  --debug
      Show the traceback of an error that nobody expected, which is otherwise
      a line. The log always has it.
  -h, --help
      Print this help.
"""

_EXAMPLE = """\
# Configuration of bananaq, with all parameters and their defaults.
#
#   bananaq --config bananaq.conf
#   bananaq --config bananaq.conf --listen-addr=127.0.0.1:4777
#
# YAML: "name: value". Environment (BANANAQ_LISTEN_ADDR) and command line
# override this file. Sizes take the units b, k, kb, m, mb, g and gb; 1k is 1000
# bytes, 1kb is 1024.
"""


def usage() -> str:
    """Return the text of ``--help``: every option, by section."""
    lines = [_USAGE]
    for section, intro in SECTIONS.items():
        lines.append("\n")
        lines += [f"{line}\n" for line in _wrap(f"{section}. {_plain(intro)}", _WIDTH)]
        lines.append("\n")
        for param in TABLE.values():
            if param.section == section:
                lines.append(f"  --{param.name} {_placeholder(param)}\n")
                lines += [f"      {line}\n" for line in _wrap(_described(param), _WIDTH - 6)]
    return "".join(lines)


def example() -> str:
    """Return the text of ``--example``: a file with the default settings."""
    lines = [_EXAMPLE]
    for section, intro in SECTIONS.items():
        lines.append(f"\n{'#' * 20} {section.upper()} {'#' * (_WIDTH - 22 - len(section))}\n\n")
        lines += [f"# {line}\n" for line in _wrap(_plain(intro), _WIDTH - 2)]
        for param in TABLE.values():
            if param.section == section:
                lines.append("\n")
                lines += [f"# {line}\n" for line in _wrap(_explained(param), _WIDTH - 2)]
                lines.append(f"{param.name}: {_yaml(param.default)}\n")
    return "".join(lines)


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _plain(text: str) -> str:
    return text.replace("`", "")


def _placeholder(param: Param) -> str:
    return "[yes|no]" if isinstance(param.type, YesNo) else "VALUE"


def _explained(param: Param) -> str:
    """Describe what the parameter does and which values it takes."""
    takes = param.type.expected
    if param.unit and param.unit not in takes and param.unit != "bytes":
        takes += f", {param.unit}"
    return f"{_plain(param.help)} Value: {takes}"


def _described(param: Param) -> str:
    return f"{_explained(param)}; default: {param.default or 'empty'}"


def _yaml(text: str) -> str:
    """Write a text as a YAML value, in quotes only if necessary."""
    import yaml

    from disque_trio.config.yaml_edit import quote_yaml

    try:
        root = yaml.compose(f"a: {text}\n", Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return quote_yaml(text)
    value = root.value[0][1] if isinstance(root, yaml.MappingNode) else None
    same = isinstance(value, yaml.ScalarNode) and value.value == text
    return text if same and text else quote_yaml(text)
