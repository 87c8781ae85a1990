"""Measuring an encoder: ranking, agreement with the teacher, sentence similarity, geometry and cost."""
