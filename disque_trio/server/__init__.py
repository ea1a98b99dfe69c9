"""The process of a node: sockets, turns, timers, signals, start and stop."""
