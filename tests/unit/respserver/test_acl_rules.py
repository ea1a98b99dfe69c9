"""ACL rules: what they mean, and how they are written."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from disque_trio.node.commands.table import build_table
from disque_trio.respserver.access import ADD, KNOW, PATTERN, TAKE
from disque_trio.respserver.acl.catalog import Catalog, word_of
from disque_trio.respserver.acl.user import SetUserError, User, hash_of
from disque_trio.respserver.acl.users import DeclarationError, Users

TABLE = build_table()
CATALOG = Catalog(TABLE.values())


def user(*rules: str) -> User:
    made = User(b"u", CATALOG)
    made.set([rule.encode() for rule in rules])
    return made


def lets(who: User, *request: str, accesses: list[tuple[bytes, int]] | None = None) -> bool:
    args = [word.encode() for word in request]
    command = TABLE[args[0]]
    return who.refusal(word_of(command, args), accesses or []) is None


def test_taking_from_all_and_adding_to_all_is_all_queues_and_can_be_read_again() -> None:
    for rules in (("%R~q", "%R~*", "%W~*"), ("%W~*", "~q", "%r~*"), ("(%R~q %R~* %W~*)", "+@all")):
        made = user(*rules)
        again = User(b"u", CATALOG)
        again.set(made.describe().split(b" "))
        assert again.describe() == made.describe()
        assert b"~*" in made.describe()
        assert b"~q" not in made.describe()
    assert user("+@all", "%R~*", "%W~*").unrestricted
    assert not user("+@all", "%R~*", "%W~**").unrestricted


# ---- commands -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "shown"),
    [
        ("", "-@all"),
        ("+addjob", "-@all +addjob"),
        ("+@all", "+@all"),
        ("allcommands", "+@all"),
        ("+@all nocommands", "-@all"),
        ("+@all -@dangerous +addjob", "+@all -@dangerous"),  # ADDJOB was allowed already
        ("+@all -addjob +addjob", "+@all"),
        ("+@read -@dangerous +addjob", "-@all +@read -@dangerous +addjob"),
        ("+@all +@read", "+@all"),
        ("+@read +addjob -show", "-@all +@read +addjob -show"),
        ("+ADDJOB", "-@all +addjob"),
        ("+getjobs +queue", "-@all +getjob +enqueue"),
        ("+config|get", "-@all +config|get"),
        ("+config|get +config", "-@all +config"),
        ("+config -config|set", "-@all +config -config|set"),
        ("+config|set -config", "-@all"),
        ("-config|set", "-@all"),
        ("+@all -debug|segfault", "+@all -debug|segfault"),
        ("+addjob -addjob", "-@all"),
        ("+@read -@read", "-@all"),
    ],
)
def test_rules_about_commands_are_shown_without_those_that_mean_nothing(
    rules: str, shown: str
) -> None:
    assert user(*rules.split()).root.describe_commands() == shown


def test_the_last_rule_that_is_about_a_command_counts() -> None:
    reader = user("+@read", "-@dangerous", "+addjob")
    assert lets(reader, "show", "id")
    assert lets(reader, "addjob", "q", "b", "0")
    assert not lets(reader, "getjob", "FROM", "q")
    assert not lets(reader, "config", "get", "dir")
    assert not lets(user("+addjob", "-@write"), "addjob", "q", "b", "0")
    assert lets(user("-@write", "+addjob"), "addjob", "q", "b", "0")


def test_subcommands_can_be_let_and_refused_by_themselves() -> None:
    one = user("+config|get")
    assert lets(one, "config", "GET", "dir")
    assert not lets(one, "config", "set", "dir", "x")
    assert not lets(one, "config", "nonsense")
    assert not lets(one, "config")
    assert lets(user("+config"), "config")
    but = user("+@all", "-debug|segfault")
    assert lets(but, "debug", "sleep", "0")
    assert not lets(but, "debug", "SegFault")


def test_other_names_of_a_command_do_not_get_round_a_rule() -> None:
    assert not lets(user("+@all", "-getjob"), "getjobs", "FROM", "q")
    assert lets(user("+getjobs"), "getjob", "FROM", "q")


# ---- queues -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "queue", "takes", "adds", "knows"),
    [
        ("", b"mail.in", False, False, False),
        ("~mail.*", b"mail.in", True, True, True),
        ("~mail.*", b"post", False, False, False),
        ("%R~mail.*", b"mail.in", True, False, True),
        ("%W~mail.*", b"mail.in", False, True, True),
        ("%RW~mail.*", b"mail.in", True, True, True),
        ("%wr~mail.*", b"mail.in", True, True, True),
        ("%R~mail.* %W~*.in", b"mail.in", True, True, True),
        ("allkeys", b"any", True, True, True),
        ("allqueues", b"any", True, True, True),
        ("~*", b"\xff\0 ", True, True, True),
        ("~a allkeys resetkeys", b"a", False, False, False),
    ],
)
def test_rules_about_queues(rules: str, queue: bytes, takes: bool, adds: bool, knows: bool) -> None:
    permissions = user(*rules.split()).root
    assert permissions.lets(queue, TAKE) is takes
    assert permissions.lets(queue, ADD) is adds
    assert permissions.lets(queue, TAKE | ADD) is (takes and adds)
    assert permissions.lets(queue, KNOW) is knows
    assert permissions.lets(queue, TAKE | PATTERN) is takes


def test_a_pattern_has_to_be_within_a_rule() -> None:
    mailer = user("%R~mail.*").root
    assert mailer.lets(b"mail.in.*", TAKE | PATTERN)
    assert not mailer.lets(b"*", TAKE | PATTERN)


def test_what_one_selector_lets_may_be_done() -> None:
    both = user("+addjob", "%W~in.*", "(+getjob %R~out.*)")
    assert lets(both, "addjob", "q", "b", "0", accesses=[(b"in.1", ADD)])
    assert lets(both, "getjob", "FROM", "q", accesses=[(b"out.1", TAKE)])
    assert not lets(both, "getjob", "FROM", "q", accesses=[(b"in.1", TAKE)])
    assert not lets(both, "addjob", "q", "b", "0", accesses=[(b"out.1", ADD)])
    assert both.refusal("addjob", [(b"out.1", ADD)]) == ("key", b"out.1")
    assert both.refusal("show", []) == ("command", b"show")
    assert user("+@all", "(~*", "+@all)").unrestricted
    assert not user("+@all", "~*", "clearselectors", "-monitor").unrestricted


# ---- passwords ----------------------------------------------------------------------------------


def test_passwords() -> None:
    one = user("on", ">a", ">b", ">a")
    assert one.passwords == [hash_of(b"a"), hash_of(b"b")]
    assert one.has_password(b"a")
    assert one.has_password(b"b")
    assert not one.has_password(b"c")
    one.set([b"<a"])
    assert not one.has_password(b"a")
    one.set([b"#" + hash_of(b"c"), b"!" + hash_of(b"b")])
    assert one.has_password(b"c")
    assert not one.has_password(b"b")
    one.set([b"nopass"])
    assert one.open
    assert one.has_password(b"anything")
    assert not one.passwords
    one.set([b">x"])
    assert not one.open
    assert not one.has_password(b"anything")
    one.set([b"resetpass"])
    assert not one.has_password(b"")
    assert not one.has_password(b"x")
    one.set([b"nopass"])
    one.set([b"resetpass"])
    assert not one.open
    assert not one.has_password(b"anything")


# ---- errors -------------------------------------------------------------------------------------

UNKNOWN = "Unknown command or category name in ACL"
HASH = "must be exactly 64 characters"


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("nope", "Syntax error"),
        ("%Q~a", "Syntax error"),
        ("%~a", "Syntax error"),
        ("%RWR~a", "Syntax error"),
        ("%R", "Syntax error"),
        ("~a b", "Syntax error"),
        ("&a\tb", "Syntax error"),
        ("(on)", "Syntax error"),
        ("(~a))", "Syntax error"),
        ("+", UNKNOWN),
        ("-@", UNKNOWN),
        ("+nosuch", UNKNOWN),
        ("-@nosuch", UNKNOWN),
        ("+config|nosuch", UNKNOWN),
        ("+show|x", UNKNOWN),
        ("+\xff", UNKNOWN),
        ("+config|get|dir", "Allowing first-arg of a subcommand is not supported"),
        ("#zz", HASH),
        ("#" + "A" * 64, HASH),
        ("!", HASH),
        ("<x", "The password you are trying to remove from the user does not exist"),
    ],
)
def test_a_wrong_rule_is_named_and_changes_nothing(rules: str, reason: str) -> None:
    one = user("on", "+addjob", "~x")
    before = one.describe()
    with pytest.raises(SetUserError) as wrong:
        one.set([b"off", rules.encode("latin-1")])
    assert reason in str(wrong.value)
    assert one.describe() == before


def test_empty_rules_are_left_out() -> None:
    one = User(b"u", CATALOG)
    one.set([b"", b"on", b"", b"+addjob"])
    assert one.describe() == b"on resetchannels -@all +addjob"


def test_patterns_of_channels_are_kept_and_shown_once() -> None:
    one = user("&news.*", "&sport", "&news.*", "+@all")
    assert one.describe() == b"off resetchannels &news.* &sport +@all"
    one.set([b"resetchannels", b"&a"])
    assert one.describe() == b"off resetchannels &a +@all"


def test_patterns_behind_all_of_them_and_open_parentheses_are_wrong() -> None:
    for rules, text in (
        (("~*", "~a"), "Adding a pattern after the * pattern (or the 'allkeys' flag)"),
        (("&*", "&a"), "Adding a pattern after the * pattern (or the 'allchannels' flag)"),
        (("(+addjob",), "Unmatched parenthesis in acl selector starting at '(+addjob'."),
        (("(+addjob", "~a"), "Unmatched parenthesis"),
    ):
        with pytest.raises(SetUserError) as wrong:
            user(*rules)
        assert text in str(wrong.value)


# ---- writing and reading back -------------------------------------------------------------------

WORDS = [*CATALOG.all, *(f"@{name}" for name in CATALOG.by_category), "@all"]
GLOBS = st.text("ab.*?[]\\-%~", min_size=0, max_size=6)
COMMANDS = st.builds(lambda sign, word: sign + word, st.sampled_from("+-"), st.sampled_from(WORDS))
QUEUES = st.builds(
    lambda prefix, glob: prefix + glob, st.sampled_from(["~", "%R~", "%W~", "&"]), GLOBS
)
PLAIN = st.sampled_from(["resetkeys", "allkeys", "allchannels", "resetchannels"])
PERMISSIONS = st.lists(st.one_of(COMMANDS, COMMANDS, QUEUES, PLAIN), max_size=12)
OWN = st.sampled_from(["on", "off", "nopass", "resetpass", ">a", ">b", "reset", "clearselectors"])
SELECTORS = PERMISSIONS.map(lambda rules: "(" + " ".join(rules) + ")")
RULES = st.lists(st.one_of(COMMANDS, COMMANDS, QUEUES, PLAIN, OWN, SELECTORS), max_size=16)


def applied(rules: list[str]) -> User:
    """Return a user with all of ``rules`` that can be applied."""
    made = User(b"u", CATALOG)
    for rule in rules:
        try:
            made.set([rule.encode()])
        except SetUserError:
            pass
    return made


@given(RULES)
@example(["+quit", "-@read", "+quit"])
@example(["allcommands", "-@connection", "+quit", "-@connection"])
def test_a_user_that_is_read_again_is_the_same(rules: list[str]) -> None:
    made = applied(rules)
    again = User(b"u", CATALOG)
    again.set(made.describe().split())
    assert again.describe() == made.describe()
    for one, other in zip(
        [made.root, *made.selectors], [again.root, *again.selectors], strict=True
    ):
        assert one.allowed == other.allowed
        assert one.patterns == other.patterns
        assert one.every_queue == other.every_queue
    assert made.unrestricted == again.unrestricted
    assert made.passwords == again.passwords


@given(st.lists(COMMANDS, max_size=12))
def test_rules_that_are_left_out_make_no_difference(rules: list[str]) -> None:
    allowed: set[str] = set()
    for rule in rules:
        name = rule[1:]
        words = CATALOG.category(name[1:]) if name[0] == "@" else CATALOG.named(name)
        assert words is not None
        allowed = allowed | words if rule[0] == "+" else allowed - words
    assert user(*rules).root.allowed == allowed


# ---- the table of users -------------------------------------------------------------------------


def test_declarations_are_read_and_replace_the_users_that_there_are() -> None:
    users = Users(CATALOG)
    users.require(b"secret")
    users.set(b"old", [b"on"])
    users.set(b"kept", [b"on", b">x", b"+@all"])
    kept, old = users.by_name[b"kept"], users.by_name[b"old"]
    declared: dict[bytes, User] = {}
    users.declare(declared, [b"kept", b"on", b">y", b"+show"])
    users.declare(declared, [b"new", b"on"])
    with pytest.raises(DeclarationError, match="Duplicate user 'new' found"):
        users.declare(declared, [b"new"])
    with pytest.raises(DeclarationError, match=r"'\+nope' for the user named 'bad'"):
        users.declare(declared, [b"bad", b"on", b"+nope"])
    assert users.replace(declared) == [old]
    assert sorted(users.by_name) == [b"default", b"kept", b"new"]
    assert users.by_name[b"kept"] is kept  # clients are logged in as it
    assert kept.has_password(b"y")
    assert not kept.has_password(b"x")
    assert users.default.has_password(b"secret")
    assert not users.default.has_password(b"x")


def test_a_declared_default_user_counts_more_than_requirepass() -> None:
    users = Users(CATALOG)
    users.require(b"secret")
    declared: dict[bytes, User] = {}
    users.declare(declared, [b"default", b"off"])
    users.replace(declared)
    assert not users.default.enabled
    assert users.find(b"default", b"secret") is None
    users.replace({})
    assert users.find(b"default", b"secret") is users.default


def test_only_clients_can_set_requirepass_for_a_declared_default_user() -> None:
    users = Users(CATALOG)
    users.require(b"secret")
    declared: dict[bytes, User] = {}
    users.declare(declared, [b"default", b"on", b">own"])
    users.replace(declared)
    users.require(b"")  # a reloaded configuration has none
    assert not users.default.open
    assert users.find(b"default", b"own") is users.default
    users.require(b"new", by_client=True)
    assert users.find(b"default", b"own") is None
    assert users.find(b"default", b"new") is users.default


def test_who_may_log_in() -> None:
    users = Users(CATALOG)
    users.set(b"a", [b"on", b">x"])
    users.set(b"off", [b"off", b">x"])
    users.set(b"open", [b"on", b"nopass"])
    assert users.find(b"a", b"x") is users.by_name[b"a"]
    for name, password in ((b"a", b"y"), (b"off", b"x"), (b"nobody", b"x"), (b"", b"")):
        assert users.find(name, password) is None
    assert users.find(b"open", b"whatever") is not None


@pytest.mark.parametrize("name", [b"a b", b"a\0", b"a\n"])
def test_names_with_spaces_are_refused(name: bytes) -> None:
    with pytest.raises(SetUserError, match="Usernames can't contain spaces or null characters"):
        Users(CATALOG).set(name, [])


def test_only_what_differs_from_requirepass_has_to_be_written() -> None:
    users = Users(CATALOG)
    assert users.only_password
    assert users.own_lines() == []
    users.require(b"secret")
    assert users.only_password
    assert users.own_lines() == []
    users.set(b"a", [b"on"])
    assert not users.only_password
    assert users.own_lines() == [b"user a on resetchannels -@all"]
    users.set(b"default", [b"-debug"])
    assert len(users.own_lines()) == 2


@pytest.mark.parametrize(
    "name", [b"", b"a\x1b[2J", b"a\x07", b"a\x7f", "a\u202eb".encode(), b"\xff", b"\x9b2J"]
)
def test_names_that_a_file_or_a_terminal_would_misread_are_refused(name: bytes) -> None:
    users = Users(CATALOG)
    with pytest.raises(SetUserError):
        users.set(name, (b"on",))
    with pytest.raises(DeclarationError):
        users.declare({}, (name, b"on"))
    assert list(users.by_name) == [b"default"]


def test_names_may_have_letters_of_any_language() -> None:
    users = Users(CATALOG)
    name = "käse-ларёк-店".encode()
    users.set(name, (b"on",))
    assert name in users.by_name
