"""Receives requests from sockets and sends replies to them: in C where that is compiled, else as
``plain`` does."""

try:
    from disque_trio.resp._wire import cut_plain, receive, send
except ImportError:
    from disque_trio.resp.plain import cut_plain, receive, send

__all__ = ["cut_plain", "receive", "send"]
