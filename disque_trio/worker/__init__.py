"""``disque-worker``, the program that runs tasks: a supervising parent, and worker processes.

The parent (``parent``, using the pure ``fleet``) imports no user code; worker processes (``child``,
``slots``) do. They talk over a socket pair (``link``).
"""
