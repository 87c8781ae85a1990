"""Losses: pure modules, tensors in and a scalar out, computed in float32 at least, also under autocast."""
