"""Faster kernels for students and teachers on a CPU."""
