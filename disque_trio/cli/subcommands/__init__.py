"""What ``disque`` does itself, with a whole cluster: ``disque queues``, ``disque move`` and so on.

``table`` names all of them, ``running`` runs one. To add another one:

1. Write a module beside this one, with a ``SUBCOMMAND`` (see ``subcommand.py``): a function that
   adds its options to a parser, and an asynchronous one that does the work and returns the exit
   status. The latter gets a ``Call``: the options, and where rows and progress go.
2. Add a line to ``table.TABLE``: the name, what it does, the module.
3. Describe it in docs/cli.md, which a test compares with the table.

``reach`` opens a connection to each node; ``overview`` of the package ``disque_trio`` reads queues
and nodes as ``disque --top`` does.
"""
