"""No setting that names a path can be set by every client."""

import pytest

from disque_bananaq.settings import TABLE as BANANAQ
from disque_bananaq.settings import BananaSettings
from disque_trio.config import TABLE, Config, ConfigError, Param, Settings
from disque_trio.config.types import Directory, FileName, Includes, Text

# Texts that name neither a file nor a directory.
NO_PATHS = {
    "okq-group",
    "redis-password",
    "redis-prefix",
    "redis-sentinel-password",
    "redis-sentinel-username",
    "redis-service",
    "redis-username",
    "requirepass",
    "syslog-ident",
    "tls-ciphers",
    "tls-ciphersuites",
    "tls-key-file-pass",
    "tls-protocols",
}
PARAMS = [*TABLE.values(), *BANANAQ.values()]
PATHS = [
    param
    for param in PARAMS
    if isinstance(param.type, (Directory, FileName, Includes))
    or (isinstance(param.type, Text) and param.name not in NO_PATHS)
]


def test_what_looks_like_a_path_is_one() -> None:
    words = ("file", "filename", "dir", "path", "socket")
    named = {param.name for param in PARAMS if param.name.endswith(words)}
    assert named <= {param.name for param in PATHS}


@pytest.mark.parametrize("param", PATHS, ids=lambda param: param.name)
def test_a_setting_that_names_a_path_is_protected_or_for_files_only(param: Param) -> None:
    assert param.protected or not param.settable


@pytest.mark.parametrize("settings", [Config(), BananaSettings()], ids=["node", "bananaq"])
def test_one_protected_setting_among_several_keeps_all_as_they_are(settings: Settings) -> None:
    before = settings.values()
    names = [name for name, param in settings.table.items() if param.protected]
    for name in names:
        for pairs in ([("hz", "77"), (name, "/")], [(name.upper(), "/"), ("hz", "77")]):
            with pytest.raises(ConfigError, match="can't set protected config"):
                settings.read_pairs([(a.encode(), b.encode()) for a, b in pairs], trusted=False)
    assert settings.values() == before


@pytest.mark.parametrize("settings", [Config, BananaSettings])
def test_certificates_at_the_same_path_can_be_read_again_by_everybody(
    settings: type[Settings],
) -> None:
    running = settings({"tls-cert-file": "node.pem"})
    same = [(b"tls-cert-file", b"node.pem"), (b"TLS-KEY-FILE", b"")]
    assert running.read_pairs(same, trusted=False) == {
        "tls-cert-file": "node.pem",
        "tls-key-file": "",
    }
    for other in (b"", b"./node.pem", b"/node.pem"):
        with pytest.raises(ConfigError, match="set protected config to another path"):
            running.read_pairs([(b"tls-cert-file", other)], trusted=False)


def test_the_password_of_a_key_cannot_be_guessed() -> None:
    running = Config({"tls-key-file-pass": "secret"})
    with pytest.raises(ConfigError, match=r"can't set protected config$"):
        running.read_pairs([(b"tls-key-file-pass", b"secret")], trusted=False)
