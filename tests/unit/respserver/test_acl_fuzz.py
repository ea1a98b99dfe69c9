"""Whatever is in a file of users, it is refused with the number of the line, or its users may do
the same once they are written and read again."""

import random
import re
from pathlib import Path

import pytest

from disque_trio.config import Config
from disque_trio.node.commands.table import build_table
from disque_trio.respserver.access import ADD, KNOW, PATTERN, TAKE, Access
from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.acl.user import SetUserError, User
from disque_trio.respserver.acl.users import Users
from disque_trio.respserver.user_file import UserFile, UserFileError
from tests.support.fuzzing import BYTES_A_SEED, damaged, fuzz_seeds

USERS_PAGE = (Path(__file__).parents[3] / "docs" / "users.md").read_text()
CATALOG = Catalog(build_table().values())
COMMANDS = [word.encode() for word in sorted(CATALOG.all)]
CATEGORIES = [word.encode() for word in CATALOG.by_category]
QUEUES = (b"q", b"mail.a", b"mail.b.c", b"@news", b"[x]", b"*", b"mail.*", b"\xff", b"")
LIMITS = [word.encode() for word in re.findall(r"^\| `(%[a-z]+=)", USERS_PAGE, re.MULTILINE)]
VALUES = (b"0", b"1", b"50mb", b"1gb", b"1023", b"1025kb", b"500/s", b"2147483647", b"-1", b"1e3",
          b"4611686018427387903", b"4611686018427387904", b"", b"1.5mb", b"99999999tb")  # fmt: skip
PATTERNS = (b"*", b"q", b"mail.*", b"mail.?", b"[a-z]*", b"\\*", b"@news", b"\xff*", b"[", b"a\\")
GROUPS = (b"allkeys", b"allqueues", b"resetkeys", b"resetqueues", b"allcommands", b"nocommands",
          b"allchannels", b"resetchannels")  # fmt: skip
PIECES = (
    *(b"\n", b"\r", b" ", b"\t", b"\0", b"(", b")", b"#", b"+", b"-", b"~", b"%R~", b"%RW~", b"%"),
    *(b">", b"<", b"!", b"user ", b"USER u ", b"@", b"|", b"&", b"on", b"default", b"\xef\xbb\xbf"),
    *(b"\x1b[2J", b"\xc3\xa4", b"\x00\xa0", b"\x85", b"\xe2\x80\xa8", b"reset ", b"nopass "),
)


def rule(rng: random.Random, nested: bool = True) -> bytes:
    """A rule, most likely a right one."""
    sign = rng.choice((b"+", b"-"))
    what = rng.randrange(13)
    if what < 3:
        return sign + rng.choice(COMMANDS)
    if what < 5:
        return sign + b"@" + rng.choice((*CATEGORIES, b"all", b"all"))
    if what < 8:
        return rng.choice((b"~", b"%R~", b"%W~", b"%RW~", b"&")) + rng.choice(PATTERNS)
    if what == 8 and nested:
        return b"(" + b" ".join(rule(rng, False) for _ in range(rng.randrange(4))) + b")"
    if what == 9:
        return rng.choice(GROUPS)
    if not nested:
        return b"~x"
    if what == 12:
        return rng.choice(LIMITS) + rng.choice(VALUES[:7] if rng.random() < 0.9 else VALUES)
    words = (b"on", b"off", b"nopass", b"resetpass", b">p", b"<p", b"#" + b"ab" * 32, b"reset")
    return rng.choice(
        (*words, b"clearselectors", b"sanitize-payload", b"nolimits", b"!" + b"ab" * 32)
    )


def file_of_users(rng: random.Random) -> bytes:
    """A file of users, most likely a right one."""
    lines = []
    for number in range(rng.randrange(1, 6)):
        name = b"default" if rng.random() < 0.1 else b"u%d" % number
        rules = [rule(rng) for _ in range(rng.randrange(8))]
        lines.append(b" ".join([b"user", name, *rules]))
    return b"\n".join([*lines, b"# a comment", b""])


def decisions(user: User) -> list[object]:
    """What ``user`` may do: each command on one of the queues, and much else."""
    found: list[object] = [user.enabled, user.nopass, sorted(user.passwords), user.unrestricted]
    found.append(user.budget.limits() if user.budget else {})
    for number, word in enumerate(sorted(CATALOG.all)):
        queue = QUEUES[number % len(QUEUES)]
        found.append(user.refusal(word, [(queue, TAKE)]))
    accesses: list[Access] = [
        (queue, need) for queue in QUEUES for need in (KNOW, TAKE, ADD, TAKE | ADD, TAKE | PATTERN)
    ]
    for word in ("getjob", "addjob", "qlen"):
        found += [user.refusal(word, [access]) for access in accesses]
    return found


def kind(rule: str) -> str:
    """What tells ``rule`` from rules of other kinds: its first characters, or the whole word."""
    found = re.match(r"%\w+=|%\w*~|[+-]@|[+-]\w[\w-]*\||[^\w\s]", rule)
    return re.sub(r"\w[\w-]*\|", "|", found[0]) if found else rule


def test_rules_of_every_kind_are_made() -> None:
    tables = re.findall(r"^\| rule \|.*\n((?:\|.*\n)+)", USERS_PAGE, re.MULTILINE)
    cells = re.findall(r"^\|(.*?)(?<!\\)\|", "".join(tables), re.MULTILINE)
    documented = {
        kind(rule.replace("\\|", "|")) for cell in cells for rule in re.findall("`(.*?)`", cell)
    }
    rng = random.Random(0)
    made = {kind(rule(rng).decode("latin-1")) for _ in range(20_000)}
    assert len(documented) > 30
    assert documented - made == {"%"}  # of `%max...=`, which stands for others


@pytest.mark.parametrize("seed", fuzz_seeds(100_000))
@pytest.mark.slow
def test_users_may_do_the_same_after_they_are_written(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = tmp_path / "users.acl"
    file = UserFile(Config({"aclfile": str(path)}))
    problems: list[str] = []
    sent = number = 0
    while sent < BYTES_A_SEED:
        number += 1
        data = file_of_users(rng)
        if rng.random() < 0.7:
            data = damaged(data, rng, PIECES)
        sent += len(data)
        path.write_bytes(data)
        users = Users(CATALOG)
        try:
            users.replace(file.read(users))
        except UserFileError as wrong:
            problems.append(str(wrong))
            continue
        before = {user.name: decisions(user) for user in users.sorted()}
        file.write(users)
        again = Users(CATALOG)
        again.replace(file.read(again))
        assert {user.name: decisions(user) for user in again.sorted()} == before
        assert [user.line() for user in again.sorted()] == [user.line() for user in users.sorted()]
        for line in (user.line() for user in users.sorted()):
            assert line.decode("latin-1").count("\n") == 0
    assert number / 10 < len(problems) < number * 9 / 10
    assert all(problem.startswith(f"{path}:") for problem in problems)


@pytest.mark.parametrize("seed", fuzz_seeds(100_000, part=4))
def test_rules_that_are_refused_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    users = Users(CATALOG)
    sent = refused = 0
    while sent < BYTES_A_SEED:
        rules = [rule(rng) for _ in range(rng.randrange(1, 6))]
        if rng.random() < 0.5:
            at = rng.randrange(len(rules))
            rules[at] = damaged(rules[at], rng, PIECES)
        sent += sum(map(len, rules))
        before = [user.line() for user in users.sorted()]
        try:
            users.set(b"u", rules)
        except SetUserError:
            refused += 1
            refused_line = [user.line() for user in users.sorted()]
        else:
            refused_line = before
        assert refused_line == before
    assert refused > 0
