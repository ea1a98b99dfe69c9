"""The types of parameters: from words to a value and back.

Has the syntax of single values: integers, sizes, yes/no, choices, text, directories, octal modes,
addresses, output limits. A type knows nothing of files, names or other parameters.

All inputs (both file formats, the command line, CONFIG SET) pass a value as a list of words, so
that all of them accept and refuse the same.
"""

from __future__ import annotations

import ipaddress
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Generic, NamedTuple, TypeVar

from disque_trio.config.errors import BadValue
from disque_trio.config.words import join_words
from disque_trio.notation.sizes import format_size, read_size

T = TypeVar("T")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

# No leading zeros: YAML reads 010 as 8, a person as 10. Refusing it is clearer than either.
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")


class ParamType(ABC, Generic[T]):
    """The syntax of a parameter's values.

    Attributes:
        expected: what it accepts, to follow "expected" in an error and to appear in a table.
        several: it takes several words; a single text from CONFIG SET or the command line is split.
        listed: in YAML it may be a list.
        boolean: in YAML it may be true or false.
        quoted: REWRITE always puts it in quotes.
        adds_up: several lines of a file with this setting add up instead of replacing each other.
        whole: of those that add up: REWRITE replaces all lines together, and a reload leaves them
            to the code that they concern.
    """

    expected: str
    several: ClassVar[bool] = False
    listed: ClassVar[bool] = False
    boolean: ClassVar[bool] = False
    quoted: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False
    whole: ClassVar[bool] = False

    @abstractmethod
    def parse(self, words: Sequence[str]) -> T:
        """Return the value of these words; raises ``BadValue``."""

    @abstractmethod
    def show(self, value: T) -> str:
        """Return the text that CONFIG GET replies."""

    def words(self, value: T) -> list[str]:
        """Return the words that REWRITE puts into a file; ``parse`` turns them into the same
        value."""
        return [self.show(value)]

    def merge(self, old: T, new: T) -> T:
        """Return what an earlier and a later line of a file mean together."""
        return new


class Word(ParamType[T]):
    """A type whose value is exactly one word."""

    def parse(self, words: Sequence[str]) -> T:
        if len(words) != 1:
            raise BadValue
        return self.parse_word(words[0])

    def show(self, value: T) -> str:
        return str(value)

    @abstractmethod
    def parse_word(self, word: str) -> T:
        """Return the value of the word; raises ``BadValue``."""


def parse_integer(word: str, low: int, high: int) -> int:
    """Parse a decimal integer within bounds; raises ``BadValue``."""
    if not _INTEGER.fullmatch(word) or not low <= int(word) <= high:
        raise BadValue
    return int(word)


def parse_size(word: str, low: int = 0, high: int = LONG_MAX) -> int:
    """Parse a number of bytes with an optional unit, within bounds; raises ``BadValue``."""
    value = read_size(word)
    if value is None or not low <= value <= high:
        raise BadValue
    return value


class Int(Word[int]):
    """An integer from ``low`` to ``high``."""

    def __init__(self, low: int = 0, high: int = INT_MAX) -> None:
        self.low = low
        self.high = high
        self.expected = (
            f"an integer of at least {low}"
            if high in (INT_MAX, LONG_MAX)
            else f"an integer from {low} to {high}"
        )

    def parse_word(self, word: str) -> int:
        return parse_integer(word, self.low, self.high)


class Memory(Word[int]):
    """A number of bytes, with the units b k kb m mb g gb (k is 1000, kb is 1024)."""

    def __init__(self, low: int = 0, high: int = LONG_MAX) -> None:
        self.low = low
        self.high = high
        self.expected = "a size such as 100mb or 1gb"
        if high != LONG_MAX:
            self.expected = f"a size from {format_size(low)} to {format_size(high)}"
        elif low:
            self.expected = f"a size of at least {format_size(low)}"

    def parse_word(self, word: str) -> int:
        return parse_size(word, self.low, self.high)

    def words(self, value: int) -> list[str]:
        return [format_size(value)]


class YesNo(Word[bool]):
    """yes or no."""

    boolean = True
    expected = "yes or no"

    def parse_word(self, word: str) -> bool:
        if word.lower() not in ("yes", "no"):
            raise BadValue
        return word.lower() == "yes"

    def show(self, value: bool) -> str:
        return "yes" if value else "no"


class KeepAlive(Word[int]):
    """Seconds between keepalive probes; ``yes`` is 300, ``no`` is 0."""

    boolean = True
    expected = "yes, no or a number of seconds"
    default_seconds: ClassVar[int] = 300

    def parse_word(self, word: str) -> int:
        if word.lower() == "yes":
            return self.default_seconds
        if word.lower() == "no":
            return 0
        return parse_integer(word, 0, INT_MAX)

    def show(self, value: int) -> str:
        return {0: "no", self.default_seconds: "yes"}.get(value, str(value))


class Choice(Word[str]):
    """One of a few words, in lower case; accepts any case."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices
        self.expected = "one of " + ", ".join(choices)

    def parse_word(self, word: str) -> str:
        if word.lower() not in self.choices:
            raise BadValue
        return word.lower()


class Text(Word[str]):
    """Any text without NUL bytes, up to ``longest`` bytes."""

    quoted = True

    def __init__(self, expected: str = "text", longest: int = 4096) -> None:
        self.expected = expected
        self.longest = longest

    def parse_word(self, word: str) -> str:
        if "\0" in word:
            raise BadValue("it holds a NUL byte")
        if len(word.encode("utf-8", "surrogateescape")) > self.longest:
            raise BadValue(f"it is longer than {self.longest} bytes")
        return word


class Ciphers(Text):
    """A list of ciphers for TLS 1.2 that OpenSSL understands; empty: its own choice."""

    def __init__(self) -> None:
        super().__init__("a list of ciphers as in openssl ciphers")

    def parse_word(self, word: str) -> str:
        super().parse_word(word)
        if word:
            import ssl  # a process without TLS does not load it

            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(word)
            except (ssl.SSLError, ValueError) as problem:
                raise BadValue("OpenSSL cannot choose any cipher of it") from problem
        return word


class CipherSuites(Text):
    """A list of cipher suites for TLS 1.3 that OpenSSL understands; empty: its own choice."""

    def __init__(self) -> None:
        super().__init__("a list of cipher suites")

    def parse_word(self, word: str) -> str:
        super().parse_word(word)
        if word:
            import ssl  # a process without TLS does not load it

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            choose = getattr(context, "set_ciphersuites", None)
            if choose is None:
                raise BadValue("The ssl module of this Python cannot choose them; leave it empty")
            try:
                choose(word)
            except (ssl.SSLError, ValueError) as problem:
                raise BadValue("OpenSSL cannot choose any of them") from problem
        return word


class TlsProtocols(Word[tuple[str, ...]]):
    """Versions of TLS in one text; none means all."""

    quoted = True
    versions = ("TLSv1.2", "TLSv1.3")
    expected = "TLSv1.2 and TLSv1.3, or one of them, or an empty text for both"

    def parse_word(self, word: str) -> tuple[str, ...]:
        named = word.lower().split()
        if set(named) - {version.lower() for version in self.versions}:
            raise BadValue("Use TLSv1.2 and TLSv1.3; older ones are not safe, and not offered")
        return tuple(version for version in self.versions if version.lower() in named)

    def show(self, value: tuple[str, ...]) -> str:
        return " ".join(value)


class FileName(Text):
    """The name of a file inside ``dir``: no directory part, not empty."""

    def __init__(self) -> None:
        super().__init__("a file name without a directory", 255)

    def parse_word(self, word: str) -> str:
        if not word or "/" in word or word in (".", ".."):
            raise BadValue
        return super().parse_word(word)


class Directory(Text):
    """A directory that exists. The value is its absolute path."""

    def __init__(self) -> None:
        super().__init__("an existing directory")

    def parse_word(self, word: str) -> str:
        super().parse_word(word)
        try:
            # Not resolve(): an operator may point a symlink elsewhere between two starts.
            path = Path(word).absolute()
            path.stat()
        except OSError as error:
            raise BadValue(error.strerror or str(error)) from error
        if not word or not path.is_dir():
            raise BadValue("Not a directory")
        return str(path)


class FileMode(Word[int]):
    """The permission bits of a file, in octal; 0 leaves them to the umask."""

    expected = "an octal file mode from 0 to 777"

    def parse_word(self, word: str) -> int:
        if not re.fullmatch("0?[0-7]{1,3}", word):
            raise BadValue
        return int(word, 8)

    def show(self, value: int) -> str:
        return f"{value:o}"


class Addresses(ParamType[tuple[str, ...]]):
    """Up to ``most`` addresses; a single empty word means none."""

    several = True
    listed = True

    def __init__(self, most: int) -> None:
        self.most = most
        self.expected = f"up to {most} addresses"

    def parse(self, words: Sequence[str]) -> tuple[str, ...]:
        if list(words) == [""]:
            return ()
        if len(words) > self.most or not all(re.fullmatch(r"[!-~]+", word) for word in words):
            raise BadValue
        if any(word.count(":") == 1 or word.startswith("[") for word in words):
            raise BadValue("without ports and brackets")
        return tuple(words)

    def show(self, value: tuple[str, ...]) -> str:
        return " ".join(value)

    def words(self, value: tuple[str, ...]) -> list[str]:
        return list(value) or [""]


class Secrets(ParamType[tuple[str, ...]]):
    """A secret, maybe with a second one that is also valid; a single empty word means none."""

    several = True
    listed = True
    quoted = True
    shortest: ClassVar[int] = 16  # bytes
    longest: ClassVar[int] = 512
    expected = f"one or two secrets of {shortest} to {longest} bytes, or an empty text for none"

    def parse(self, words: Sequence[str]) -> tuple[str, ...]:
        if list(words) in ([], [""]):
            return ()
        if len(words) > 2:
            raise BadValue("one with spaces needs quotes")
        for word in words:
            size = len(word.encode("utf-8", "surrogateescape"))
            if not self.shortest <= size <= self.longest or "\0" in word:
                raise BadValue(f"make one with: openssl rand -hex {self.shortest}")
        return tuple(dict.fromkeys(words))

    def show(self, value: tuple[str, ...]) -> str:
        return join_words(value) if value else ""

    def words(self, value: tuple[str, ...]) -> list[str]:
        return list(value) or [""]


class IpAddress(Word[str]):
    """An IPv4 or IPv6 address, or nothing."""

    quoted = True
    expected = "an IP address, or an empty text for none"

    def parse_word(self, word: str) -> str:
        try:
            address = ipaddress.ip_address(word) if word else None
        except ValueError as error:
            raise BadValue from error
        if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
            raise BadValue("a zone means nothing to other machines")
        return "" if address is None else str(address)


class OutputBufferLimit(NamedTuple):
    """The limits for a client that does not read its replies; 0 switches a limit off.

    Attributes:
        hard: bytes at which it is dropped at once.
        soft: bytes at which it is dropped if they are exceeded for ``seconds`` without a break.
    """

    hard: int
    soft: int
    seconds: int


class OutputLimit(ParamType[OutputBufferLimit]):
    """``class hard soft seconds``. The only class is normal."""

    several = True
    expected = "normal HARD SOFT SECONDS, such as normal 1gb 256mb 60"

    def parse(self, words: Sequence[str]) -> OutputBufferLimit:
        if len(words) != 4 or words[0].lower() != "normal":
            raise BadValue
        return OutputBufferLimit(
            parse_size(words[1]), parse_size(words[2]), parse_integer(words[3], 0, INT_MAX)
        )

    def show(self, value: OutputBufferLimit) -> str:
        return f"normal {value.hard} {value.soft} {value.seconds}"

    def words(self, value: OutputBufferLimit) -> list[str]:
        return ["normal", format_size(value.hard), format_size(value.soft), str(value.seconds)]


class Includes(ParamType[tuple[str, ...]]):
    """Other files to read in place. Reading them consumes the setting: it never has a value."""

    several = True
    listed = True
    expected = "the path of a file"

    def parse(self, words: Sequence[str]) -> tuple[str, ...]:
        if not all(words) or "\0" in "".join(words):
            raise BadValue
        return tuple(words)

    def show(self, value: tuple[str, ...]) -> str:
        return join_words(value)


class Renames(ParamType[dict[str, str]]):
    """Commands to rename (old name in lower case: new name) or, with an empty name, to remove.

    The lines of a file add up.
    """

    several = True
    adds_up = True
    expected = 'OLD NEW, or OLD "" to remove the command'

    def parse(self, words: Sequence[str]) -> dict[str, str]:
        if not words:
            return {}
        if len(words) != 2 or not re.fullmatch("[!-~]+", words[0]):
            raise BadValue
        if not re.fullmatch("[!-~]*", words[1]):
            raise BadValue
        return {words[0].lower(): words[1]}

    def show(self, value: dict[str, str]) -> str:
        return " ".join(join_words(pair) for pair in value.items())

    def merge(self, old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
        return {**old, **new}


class UserLines(ParamType[tuple[tuple[str, ...], ...]]):
    """Declarations of users, each a name and its rules.

    The lines of a file add up.
    """

    several = True
    adds_up = True
    whole = True
    expected = "a name and rules, as in NAME on >PASSWORD ~QUEUE +COMMAND"

    def parse(self, words: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        if not words or list(words) == [""]:
            return ()
        return (tuple(words),)

    def show(self, value: tuple[tuple[str, ...], ...]) -> str:
        return ", ".join(join_words(line) for line in value)

    def merge(
        self, old: tuple[tuple[str, ...], ...], new: tuple[tuple[str, ...], ...]
    ) -> tuple[tuple[str, ...], ...]:
        return old + new
