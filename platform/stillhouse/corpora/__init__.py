"""Texts on their way in: readers, sentences, tables of texts and of tokens, and the corpus of docstrings."""
