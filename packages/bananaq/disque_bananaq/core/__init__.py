"""bananaq's rules for events: no I/O, no clock, no randomness of its own."""
