"""Nearest-neighbour search: exact, sharded, and with FAISS indexes."""
