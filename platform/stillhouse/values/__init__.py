"""Frozen values that say what is trained on what, each naming an artifact."""
