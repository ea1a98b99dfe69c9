"""ACL rules about budgets: what they mean, and how they are written."""

import pytest

from disque_bananaq.commands.table import build_table as build_bananaq_table
from disque_trio.node.commands.table import build_table
from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.acl.user import SetUserError, User
from disque_trio.respserver.acl.users import Users
from tests.support.node_bench import Bench

CATALOG = Catalog(build_table().values())
ALL = (
    "%maxmemory=50mb %maxkeys=10000 %maxschedules=20 %maxbindings=30 %maxpolicies=40 "
    "%maxconnections=100 "
    "%maxoutput=10mb %rate=500/s"
)


def user(*rules: str, catalog: Catalog = CATALOG) -> User:
    made = User(b"u", catalog)
    made.set([rule.encode() for rule in rules])
    return made


def shown(made: User) -> str:
    return made.budget.describe().decode() if made.budget else ""


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("", ""),
        (ALL, ALL),
        (" ".join(reversed(ALL.split())), ALL),
        ("%MAXKEYS=1 %Rate=2/S", "%maxkeys=1 %rate=2/s"),
        ("%rate=2", "%rate=2/s"),
        ("%maxmemory=1024kb %maxoutput=1000", "%maxmemory=1mb %maxoutput=1000"),
        ("%maxkeys=2048 %rate=1024/s", "%maxkeys=2048 %rate=1024/s"),
        ("%maxkeys=1 %maxkeys=2", "%maxkeys=2"),
        ("%maxkeys=1 %rate=3/s %maxkeys=0", "%rate=3/s"),
        ("%maxkeys=1 %maxkeys=0", ""),
        ("%maxkeys=1 %rate=3/s nolimits", ""),
        ("%maxkeys=1 reset", ""),
        ("%maxkeys=1 resetkeys", "%maxkeys=1"),
    ],
)
def test_rules_about_budgets_are_shown_in_one_order(rules: str, expected: str) -> None:
    assert shown(user(*rules.split())) == expected


@pytest.mark.parametrize(
    "rule",
    [
        "%maxjobs=1",
        "%=1",
        "%maxkeys",
        "%maxkeys=",
        "%maxkeys=-1",
        "%maxkeys=1mb",
        "%maxkeys=2147483648",
        "%maxmemory=10x",
        "%maxmemory=99999999999999999999",
        "%rate=5/m",
        "%rate=1000001/s",
        "(%maxkeys=1)",
    ],
)
def test_a_wrong_rule_about_a_budget_changes_nothing(rule: str) -> None:
    made = user("%rate=5/s")
    with pytest.raises(SetUserError, match="Error in ACL SETUSER modifier"):
        made.set([b"%maxbindings=3", rule.encode()])
    assert shown(made) == "%rate=5/s"


def test_a_pattern_may_look_like_a_budget() -> None:
    made = user("%R~maxkeys=1", "~%maxkeys=2")
    assert made.budget is None
    assert made.root.describe_queues() == b"%R~maxkeys=1 ~%maxkeys=2"


def test_a_line_with_a_budget_makes_the_same_user_again() -> None:
    users = Users(CATALOG)
    users.set(b"shop", [b"on", b"~shop.*", b"+addjob", b"(~x +qlen)", *ALL.encode().split()])
    line = users.by_name[b"shop"].line()
    declared: dict[bytes, User] = {}
    users.declare(declared, line.split()[1:])
    assert declared[b"shop"].line() == line
    assert ALL.encode() in line


def test_a_declared_user_takes_the_declared_budget() -> None:
    users = Users(CATALOG)
    users.set(b"shop", [b"%maxkeys=5"])
    there = users.by_name[b"shop"]
    users.replace({b"shop": user("%rate=7/s")})
    assert users.by_name[b"shop"] is there
    assert shown(there) == "%rate=7/s"


def test_bananaq_has_no_limits_for_queues() -> None:
    catalog = Catalog(build_bananaq_table().values())
    assert shown(user("%rate=5/s", "%maxconnections=2", catalog=catalog))
    with pytest.raises(SetUserError):
        user("%maxkeys=5", catalog=catalog)


def test_getuser_and_list_show_a_budget(bench: Bench) -> None:
    bench("ACL", "SETUSER", "shop", *ALL.split())
    assert bench.fields("ACL", "GETUSER", "shop")[b"limits"] == ALL.encode()
    users = bench("ACL", "LIST")
    assert isinstance(users, list)
    assert users[1].endswith(ALL.encode())
    bench("ACL", "SETUSER", "shop", "nolimits")
    assert b"limits" not in bench.fields("ACL", "GETUSER", "shop")
