"""``disque-worker``, the program that runs tasks: a parent that supervises, and worker processes.

The parent imports no code of the user's (``parent``, over the pure ``fleet``); a worker process
does (``child``, ``slots``). They talk over a pair of sockets (``link``).
"""
