"""How long a job's life takes, and how long the node ever pauses, at a given load."""
