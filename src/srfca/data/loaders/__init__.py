"""Readers of published data sets: find, verify, parse and cache the files, or download them.

A loader is one file. It describes the published files (``Publication``), registers that in
``PUBLICATIONS``, and has a function ``load``.
"""
