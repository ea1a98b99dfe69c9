"""Bus packets and serialised jobs: bytes to values and back. No I/O, no clock, no state of the
node."""
