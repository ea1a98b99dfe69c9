"""The files of cluster-identity beside nodes.conf: this node's private key, and the keys of nodes.

The private key is made at the first start. It is never changed or replaced: without it, the other
nodes would not know this node any more.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from disque_trio.cluster.keyring import Keyring, KeyringError
from disque_trio.disk import replace_file
from disque_trio.extras import how_to_install

if TYPE_CHECKING:
    from disque_trio.cluster.crypto import NodeKey

KEY, KEYRING = ".key", ".keys"  # after the name of nodes.conf
_LONGEST = 16 << 20  # bytes of a file of keys


class KeysFileError(Exception):
    """The node cannot start with cluster-identity; the text says why and what to do."""


def load_key(nodes_conf: str) -> NodeKey:
    """Load this node's private key, or make the first one, in the file beside ``nodes_conf``.

    Raises:
        KeysFileError: the package for it or an algorithm is missing, or the file is damaged, open
            to others, or cannot be read or written.
    """
    try:
        from disque_trio.cluster.crypto import KeyFormatError, NodeKey, missing_algorithm
    except ImportError as problem:
        raise KeysFileError(
            f"cluster-identity needs the package cryptography: {how_to_install('identity')}"
        ) from problem
    missing = missing_algorithm()
    if missing:
        raise KeysFileError(f"cluster-identity cannot be used: this OpenSSL has no {missing}")
    path = Path(nodes_conf + KEY)
    try:
        if not path.exists() and not path.is_symlink():
            key = NodeKey.generate()
            replace_file(str(path), key.pem())  # a new file is readable only by its owner
            return key
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise KeysFileError(
                f"{path} can be read or changed by other users (mode {mode:o}). If nobody has, "
                f"chmod 600 {path}; otherwise expel the key and give the node a new one"
            )
        return NodeKey.from_pem(path.read_bytes())
    except KeyFormatError as problem:
        raise KeysFileError(
            f"{path} is not the private key of a node: {problem}. Restore it from a backup; or "
            "remove it: then the node gets a new key, and the others refuse it until they forget "
            "it (CLUSTER FORGET) and meet it again"
        ) from problem
    except OSError as problem:
        raise KeysFileError(f"{path} cannot be used: {problem.strerror}") from problem


def load_keyring(nodes_conf: str) -> Keyring:
    """Load the keys of nodes. Raises ``KeysFileError``."""
    keyring = Keyring()
    path = Path(nodes_conf + KEYRING)
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST)
    except FileNotFoundError:
        return keyring
    except OSError as problem:
        raise KeysFileError(f"{path} cannot be read: {problem.strerror}") from problem
    try:
        keyring.load(text.decode("utf-8", "replace"))
    except KeyringError as problem:
        raise KeysFileError(
            f"{path}: {problem}. Repair the file, or remove it: then the node takes the keys that "
            "its members show next for theirs, and hears from them which are expelled"
        ) from problem
    return keyring


def save_keyring(nodes_conf: str, text: str) -> str | None:
    """Replace the file with the keys of nodes. Return why it failed, or None."""
    try:
        replace_file(nodes_conf + KEYRING, text.encode())
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


def is_key_of_another(nodes_conf: str, pem: bytes) -> bool:
    """Whether there is a private key beside ``nodes_conf`` that is not ``pem``."""
    try:
        return Path(nodes_conf + KEY).read_bytes() != pem
    except FileNotFoundError:
        return False
    except OSError:
        return True


def copy_key(nodes_conf: str, pem: bytes) -> str | None:
    """Write this node's private key beside ``nodes_conf``, in another directory, unless there is
    one. Return why it failed, or None."""
    path = nodes_conf + KEY
    try:
        if not Path(path).exists():
            replace_file(path, pem)
    except OSError as problem:
        return problem.strerror or str(problem)
    return None
