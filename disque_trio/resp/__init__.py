"""RESP, the protocol of Redis: bytes to values and back. No I/O, no clock."""
