"""Corpora: readers, sentences, tables of texts and tokens, published files, and the corpus of docstrings."""
