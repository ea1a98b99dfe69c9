"""Sessions, tokens and passwords, with a moved clock."""

import pytest

from disque_console.model.passwords import NOBODY, hash_password, is_password, read_users
from disque_console.model.roles import Role
from disque_console.model.sessions import LIFETIME, RENEWED_AFTER, Sessions

SECRET = b"s" * 32


def test_a_session_is_what_its_cookie_says_until_it_expires() -> None:
    sessions = Sessions(SECRET)
    session, cookie = sessions.begin("ann", Role.OPERATOR, 0.0)
    assert sessions.read(cookie, LIFETIME - 1) == session
    assert sessions.read(cookie, LIFETIME) is None


@pytest.mark.parametrize("cookie", ["", "x", "WyJ4IiwiYW5uIiwzLDk5OTk5OTk5OTld.AAAA", "ä" * 9])
def test_a_forged_cookie_is_no_session(cookie: str) -> None:
    assert Sessions(SECRET).read(cookie, 0.0) is None


def test_a_cookie_of_another_secret_or_with_a_changed_letter_is_no_session() -> None:
    sessions = Sessions(SECRET)
    _, cookie = sessions.begin("ann", Role.VIEWER, 0.0)
    assert Sessions(b"t" * 32).read(cookie, 0.0) is None
    for place in range(0, len(cookie), 7):
        changed = "A" if cookie[place] != "A" else "B"
        assert sessions.read(cookie[:place] + changed + cookie[place + 1 :], 0.0) is None


def test_a_session_in_use_gets_a_new_cookie_and_one_that_ended_has_none_that_is_good() -> None:
    sessions = Sessions(SECRET)
    session, cookie = sessions.begin("ann", Role.VIEWER, 0.0)
    assert sessions.renewed(session, RENEWED_AFTER - 1) is None
    renewed = sessions.renewed(session, RENEWED_AFTER + 1)
    assert renewed is not None
    assert sessions.read(renewed, LIFETIME + 1) is not None
    sessions.end(session, RENEWED_AFTER + 2)
    assert sessions.read(cookie, RENEWED_AFTER + 2) is None
    assert sessions.read(renewed, RENEWED_AFTER + 2) is None


def test_each_login_has_another_session_and_each_session_another_token() -> None:
    sessions = Sessions(SECRET)
    first, _ = sessions.begin("ann", Role.VIEWER, 0.0)
    second, _ = sessions.begin("ann", Role.VIEWER, 0.0)
    assert first.id != second.id
    assert sessions.is_token(first.id, sessions.token(first.id))
    assert not sessions.is_token(second.id, sessions.token(first.id))
    assert not sessions.is_token(first.id, "")
    assert not sessions.is_token(first.id, "\udcffä")


def test_a_password_has_another_hash_each_time_and_only_it_fits() -> None:
    first, second = hash_password("s3cret"), hash_password("s3cret")
    assert first != second
    assert is_password("s3cret", first)
    assert not is_password("s3cret ", first)
    assert not is_password("s3cret", NOBODY)
    assert not is_password("s3cret", "scrypt$x$y$z")
    assert not is_password("", hash_password(""))


def test_a_file_of_users_names_role_and_hash() -> None:
    hash = hash_password("x")
    users = read_users(f"# who\n\nann:admin:{hash}\nbob:Viewer:{hash}\n")
    assert {name: user.role for name, user in users.items()} == {
        "ann": Role.ADMIN,
        "bob": Role.VIEWER,
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ann", "line 1 is not of the form"),
        ("ann:admin:plaintext", "line 1 is not of the form"),
        ("ann:root:scrypt$1$a$b", "line 1: 'root' is not a role"),
        ("a:viewer:scrypt$1$a$b\na:viewer:scrypt$1$a$b", "line 2: a is listed twice"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_users(line)
