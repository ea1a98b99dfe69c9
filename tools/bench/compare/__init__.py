"""The benchmark beside other queues: the same jobs on our node and on what else does such work."""
