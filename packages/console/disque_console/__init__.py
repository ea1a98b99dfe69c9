"""The command ``disque-console``: a cluster in the browser, over the protocol of clients.

``model`` is pure: the state of nodes and queues, and permissions. ``io`` talks to the nodes.
``web`` renders the pages. See docs/console.md.
"""
