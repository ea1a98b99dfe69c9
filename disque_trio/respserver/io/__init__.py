"""Client sockets: listeners, event-loop turns over all ready connections, and timers."""
