"""A pre-flight check: what is wrong with an experiment before hours are spent on it."""
