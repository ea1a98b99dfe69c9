"""Configuration: the table of parameters, files in two syntaxes, CONFIG GET, SET and REWRITE.

Owns everything between what an operator writes and the typed values that the server uses. Knows no
Trio, no sockets, and of the other packages only the quoting in ``resp``. Only the loading functions
read files, and only ``rewrite`` writes them. All code takes the table from the ``Settings``
subclass it is given; ``Config`` is that of a Disque node.
"""

from disque_trio.config.config import Config
from disque_trio.config.errors import ConfigError, ConfigErrors
from disque_trio.config.load import (
    check_settings_file,
    load_settings,
    load_settings_text,
    parse_arguments,
)
from disque_trio.config.params import Param
from disque_trio.config.rewrite import rewrite
from disque_trio.config.settings import Settings
from disque_trio.config.table import SECTIONS, TABLE
from disque_trio.config.types import OutputBufferLimit
from disque_trio.glob import glob_match

__all__ = [
    "SECTIONS",
    "TABLE",
    "Config",
    "ConfigError",
    "ConfigErrors",
    "OutputBufferLimit",
    "Param",
    "Settings",
    "check_settings_file",
    "glob_match",
    "load_settings",
    "load_settings_text",
    "parse_arguments",
    "rewrite",
]
