"""The hyper-parameter search: spaces, samplers, schedulers and trials."""
