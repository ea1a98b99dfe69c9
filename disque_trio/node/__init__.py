"""The Disque node: jobs and queues on a RESP server, in a cluster."""
