"""A server that speaks RESP: commands, clients, replies in order, settings, INFO.

Knows neither jobs nor events: the Disque node and bananaq are both built on it.
"""
