"""Distil a large text-embedding model into a small, fast one, and search for the best way to do it."""

__version__ = "0.1.0"
