"""The files of published benchmarks, read as they are distributed."""
