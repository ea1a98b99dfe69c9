"""The HTTP API of the console: what its pages show and do, as JSON, below ``/api/v1``.

``table`` has all addresses, with their parameters and what they answer; the routes and the OpenAPI
document are made from it. ``reading`` and ``writing`` are what is behind them.
"""
