"""Readers for the files of published benchmarks, as they are distributed."""
