"""The replies that a client's socket did not take."""

from collections import deque
from collections.abc import Callable

from disque_trio.respserver.client import PIECE


class Unsent:
    """Bytes that are to be sent, in pieces: a buffer that grows as a whole is copied as a whole, 40
    ms for 50 MB. What is long is not copied, but kept. Short replies of a long group are joined
    when their turn comes: all of them at once would take as long.

    Its length is the number of bytes that it holds. Those of a long piece count until all of it is
    sent, since they are in memory until then.

    Args:
        seal: encrypts what is lined up, when its turn comes; None: it is sent as it is.
    """

    def __init__(self, seal: Callable[[bytes | memoryview], bytes] | None = None) -> None:
        self._pieces: deque[bytearray | memoryview] = deque()
        self._later: deque[bytes] = deque()  # after the pieces
        self._sealed = 0  # bytes of the first of these that are among the pieces
        self._size = 0
        self._seal = seal

    def __len__(self) -> int:
        return self._size

    def append(self, data: bytes | memoryview) -> None:
        """Append ``data``."""
        if self._later:
            self.line_up([bytes(data)])
            return
        pieces = self._pieces
        if len(data) >= PIECE:
            long = memoryview(data)
            pieces.append(long)
            self._size += len(_whole(long))
            return
        last = pieces[-1] if pieces else None
        if isinstance(last, bytearray) and len(last) < PIECE:
            last += data
        else:
            pieces.append(bytearray(data))
        self._size += len(data)

    def line_up(self, replies: list[bytes]) -> None:
        """Append ``replies``."""
        replies = [reply for reply in replies if reply]
        self._later += replies
        self._size += sum(map(len, replies))

    def first(self) -> bytearray | memoryview:
        """The bytes to send next. Do not change them."""
        if not self._pieces:
            piece = self._next() if self._seal is None else self._next_sealed(self._seal)
            self._pieces.append(memoryview(piece))
        return self._pieces[0]

    def _next(self) -> bytes:
        """Take the next replies out of the line."""
        later = self._later
        replies = [later.popleft()]
        size = len(replies[0])
        while later and size + len(later[0]) <= PIECE:
            size += len(later[0])
            replies.append(later.popleft())
        return b"".join(replies)

    def _next_sealed(self, seal: Callable[[bytes | memoryview], bytes]) -> bytes:
        """The same, encrypted. Of a long reply, it is only a piece."""
        reply = self._later[0]
        plain: bytes | memoryview
        if len(reply) <= PIECE:
            plain = self._next()
        else:
            plain = memoryview(reply)[self._sealed : self._sealed + PIECE]
            self._sealed += len(plain)
            if self._sealed == len(reply):
                self._later.popleft()
                self._sealed = 0
        sealed = seal(plain)
        self._size += len(sealed) - len(plain)
        return sealed

    def drop(self, sent: int) -> None:
        """Forget the first ``sent`` bytes, at most as many as ``first`` has."""
        first = self._pieces[0]
        if isinstance(first, bytearray):
            self._size -= sent
        elif sent == len(first):
            self._size -= len(_whole(first))
        if sent == len(first):
            self._pieces.popleft()
        elif isinstance(first, bytearray):
            del first[:sent]
        else:
            self._pieces[0] = first[sent:]


def _whole(piece: memoryview) -> bytes:
    """What ``piece`` is a part of, and keeps in memory."""
    whole = piece.obj
    assert isinstance(whole, bytes)
    return whole
