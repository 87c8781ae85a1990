"""How long a test waits for a process that may be stuck."""

STUCK_S = 1500.0
"""Seconds after which a process counts as stuck: ten times what the slowest takes on two usual cores.

It is no limit of speed: a machine that is slow or busy takes its time, and the test passes.
"""
