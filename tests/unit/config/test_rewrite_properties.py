"""Any file loads to the same settings after a rewrite, and no comment is lost."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from disque_trio.config import TABLE, Config, load_settings, rewrite
from disque_trio.config.memory_limit import MemoryOrPercent
from disque_trio.config.types import (
    Choice,
    Ciphers,
    CipherSuites,
    FileMode,
    FileName,
    Int,
    IpAddress,
    KeepAlive,
    Memory,
    OutputLimit,
    Secrets,
    Text,
    TlsProtocols,
    YesNo,
)
from disque_trio.config.words import quote_word, to_bytes, to_text
from disque_trio.config.yaml_edit import quote_yaml

NAMES = [param.name for param in Config.stored() if not param.type.adds_up and param.name != "dir"]
NUMBERS = st.integers(0, 2**31 - 1)
SIZES = st.one_of(
    st.builds("{}{}".format, st.integers(1, 999), st.sampled_from(["", "b", "k", "KB", "mb", "g"])),
    NUMBERS.map(str),
)
BYTES = st.binary(max_size=12).map(lambda data: to_text(data.replace(b"\0", b"")))
CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
SPECIAL = st.sampled_from(["", "null", "~", "yes", "# x", "a: b", "- a", "{}", "'", '"', "\\", " "])


def numbers(kind: Any) -> st.SearchStrategy[str]:
    return st.integers(kind.low, min(kind.high, 2**40)).map(str)


# By type, the subclasses first: words that it may accept.
WORDS: list[tuple[type, Callable[[Any], st.SearchStrategy[str]]]] = [
    (Int, numbers),
    (Memory, lambda kind: numbers(kind) | SIZES),
    (MemoryOrPercent, lambda _: SIZES | st.integers(0, 100).map("{}%".format)),
    (YesNo, lambda _: st.sampled_from(["yes", "no", "YES"])),
    (KeepAlive, lambda _: st.sampled_from(["yes", "no", "300", "0", "60"])),
    (Choice, lambda kind: st.sampled_from(kind.choices)),
    (IpAddress, lambda _: st.just("") | st.ip_addresses().map(str)),
    (TlsProtocols, lambda _: st.sampled_from(["", "TLSv1.2", "tlsv1.3 TLSv1.2"])),
    (FileMode, lambda _: st.integers(0, 0o777).map("{:o}".format)),
    (FileName, lambda _: st.sampled_from(["a", "b.conf", "with space"])),
    (Ciphers, lambda _: st.sampled_from(["", "ECDHE+AESGCM", "DEFAULT:@SECLEVEL=2"])),
    (CipherSuites, lambda _: st.sampled_from(["", "TLS_AES_128_GCM_SHA256"])),
    (Text, lambda _: BYTES | SPECIAL | st.text(CHARACTERS, max_size=9)),
]
CHECKED = (Memory, YesNo, IpAddress, CipherSuites)  # they do not accept all of these


def texts(name: str) -> st.SearchStrategy[list[str]]:
    """Words that the parameter accepts, in many spellings."""
    kind = TABLE[name].type
    if isinstance(kind, Secrets):
        secret = st.text(st.sampled_from("aé#:-~"), min_size=16, max_size=20)
        return st.lists(secret, max_size=2, unique=True).map(lambda found: found or [""])
    if isinstance(kind, OutputLimit):
        return st.tuples(SIZES, SIZES, NUMBERS).map(lambda t: ["normal", t[0], t[1], str(t[2])])
    for type, make in WORDS:
        if isinstance(kind, type):
            words = make(kind).map(lambda word: [word])
            return words.filter(lambda w: takes(name, w)) if isinstance(kind, CHECKED) else words
    address = st.sampled_from(["127.0.0.1", "::1", "*", "host-1", "-::1", "10.0.0.1"])
    return st.lists(address, max_size=5).map(lambda found: found or [""])


def takes(name: str, words: list[str]) -> bool:
    try:
        TABLE[name].parse(words)
    except ValueError:
        return False
    return True


SETTINGS = st.lists(
    st.sampled_from(NAMES).flatmap(lambda name: st.tuples(st.just(name), texts(name))), max_size=8
)
# Every comment is different, so that a lost one is noticed.
FILLER = st.lists(st.sampled_from(["", "#", "  # ", "#port ", "# dir: "]), max_size=3)


def conf_line(name: str, words: list[str]) -> str:
    return " ".join([name, *(quote_word(word) for word in words)])


def yaml_lines(name: str, words: list[str], form: int, remark: str) -> list[str]:
    param = TABLE[name]
    if form == 0 or not param.type.several:
        text = " ".join(words)
        return [f"{name}: {quote_yaml(text, always=param.type.quoted)}{remark}"]
    if name == "client-output-buffer-limit":
        _, hard, soft, seconds = words
        if form == 1:
            return [
                f"{name}: {{normal: {{hard: {hard}, soft: {soft}, seconds: {seconds}}}}}{remark}"
            ]
        return [
            f"{name}:{remark}",
            "  normal:",
            f"    seconds: {seconds}",
            f"    hard: {hard}{remark and remark + 'b'}",
            f"    soft: {soft}",
        ]
    items = [quote_yaml(word) for word in words if word]
    if form == 1 or not items:
        return [f"{name}: [{', '.join(items)}]{remark}"]
    return [
        f"{name}:{remark}",
        *(f"  - {item}{remark and f'{remark}{n}'}" for n, item in enumerate(items)),
    ]


def comments(text: str) -> list[str]:
    """Return the comments, each of which ends in a word of its own."""
    words = (word.lstrip("#") for word in text.replace("\n", " ").split())
    return sorted(word for word in words if word.startswith("remark"))


def check(path: Path, text: str, wanted: list[tuple[str, list[str]]]) -> None:
    path.write_bytes(to_bytes(text))
    before = load_settings(Config, str(path))
    values = before.values() | {name: TABLE[name].parse(words) for name, words in wanted}
    config = Config(values, file=str(path))
    rewrite(config)
    after = to_text(path.read_bytes())
    assert load_settings(Config, str(path)) == config
    assert comments(after) == comments(text)
    kept = [line for line in text.split("\n") if line.strip() and is_comment(line)]
    assert [line for line in after.split("\n") if line in kept] == kept
    rewrite(config)
    assert to_text(path.read_bytes()) == after


def is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


@settings(deadline=None)
@given(SETTINGS, SETTINGS, st.data(), st.booleans())
def test_conf_files_load_to_what_was_written(
    present: list[tuple[str, list[str]]],
    wanted: list[tuple[str, list[str]]],
    data: st.DataObject,
    ended: bool,
) -> None:
    lines = []
    for number, (name, words) in enumerate(present):
        fill = data.draw(FILLER)
        lines += [f"{line}remark{number}.{n}" if line else "" for n, line in enumerate(fill)]
        lines.append(conf_line(name, words))
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    with tempfile.TemporaryDirectory() as directory:
        check(Path(directory) / "a.conf", text, wanted)


@settings(deadline=None)
@given(SETTINGS, SETTINGS, SETTINGS, st.data())
def test_conf_files_with_includes_load_to_what_was_written(
    present: list[tuple[str, list[str]]],
    included: list[tuple[str, list[str]]],
    wanted: list[tuple[str, list[str]]],
    data: st.DataObject,
) -> None:
    lines = [conf_line(name, words) for name, words in present]
    lines.insert(data.draw(st.integers(0, len(lines))), "include inner.conf")
    with tempfile.TemporaryDirectory() as directory:
        inner = "\n".join(conf_line(name, words) for name, words in included)
        (Path(directory) / "inner.conf").write_bytes(to_bytes(inner))
        check(Path(directory) / "a.conf", "\n".join(lines), wanted)


@settings(deadline=None)
@given(SETTINGS, SETTINGS, st.data(), st.booleans(), st.sampled_from(["", "  "]))
def test_yaml_files_load_to_what_was_written(
    present: list[tuple[str, list[str]]],
    wanted: list[tuple[str, list[str]]],
    data: st.DataObject,
    ended: bool,
    indent: str,
) -> None:
    lines = []
    for number, (name, words) in enumerate(dict(present).items()):
        fill = data.draw(FILLER)
        lines += [f"{line}remark{number}.{n}" if line else "" for n, line in enumerate(fill)]
        remark = data.draw(st.sampled_from(["", f"  # remark{number}x"]))
        form = data.draw(st.integers(0, 2))
        lines += [indent + line for line in yaml_lines(name, words, form, remark)]
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    with tempfile.TemporaryDirectory() as directory:
        check(Path(directory) / "a.yaml", text, wanted)
