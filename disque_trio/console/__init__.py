"""The command ``disque-console``: a cluster in the browser, over the protocol of clients.

``model`` is pure: what is known of nodes and queues, who may do what. ``io`` asks the nodes.
``web`` shows it. See docs/console.md.
"""
