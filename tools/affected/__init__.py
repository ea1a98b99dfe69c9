"""Which tests a change can reach: ``python -m tools.affected [--base REVISION]``.

A change reaches what imports it, what starts it as a program, and what reads it as a file. Modules
of the package are taken whole. Tests and what supports them are followed by definition: a helper in
a module that many import reaches only those who use the helper.
"""
