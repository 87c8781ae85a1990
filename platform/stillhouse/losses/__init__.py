"""Losses: pure modules, tensors in and a scalar out, computed in at least float32, also under autocast."""
