"""The state and rules of the console, without I/O or a clock: times are passed in."""
