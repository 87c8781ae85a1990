"""Objectives: losses bound to the batches of a stage, one file per family."""
