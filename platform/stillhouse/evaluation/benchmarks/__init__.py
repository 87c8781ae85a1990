"""The field's published benchmarks by name, each from files under a data root to figures for a table."""
