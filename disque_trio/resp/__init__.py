"""RESP, the protocol of Redis: from bytes to values and back. No I/O, no clock."""
