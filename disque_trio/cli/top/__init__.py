"""``disque --top``: a live view of the queues of a cluster in a terminal."""
