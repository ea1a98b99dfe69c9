"""Bytes to values and back: the client protocol. No I/O, no clock, no state of the node."""
