"""What bananaq does with events: no I/O, no clock, no randomness of its own."""
