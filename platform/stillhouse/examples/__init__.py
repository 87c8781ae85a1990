"""Rows of ids into text tables: hard negatives and how they are found."""
