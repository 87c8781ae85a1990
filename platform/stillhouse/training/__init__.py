"""Training: a plain torch loop, and what walks the stages of a plan around it."""
