"""The Ray cluster: joining or starting one, and what fits on it."""
