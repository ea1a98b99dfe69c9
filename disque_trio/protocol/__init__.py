"""Bus packets and serialised jobs: from bytes to values and back. No I/O, no clock, no state of the
node."""
