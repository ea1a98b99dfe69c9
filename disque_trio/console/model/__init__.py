"""What the console knows, without I/O and without a clock: moments are passed in."""
