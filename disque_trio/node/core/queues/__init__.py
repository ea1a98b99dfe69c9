"""The jobs of a node in their queues: put in, given out, limited, loaded and written."""
