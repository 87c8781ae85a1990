"""Nearest-neighbour search: exact, sharded, and by the indexes of FAISS."""
