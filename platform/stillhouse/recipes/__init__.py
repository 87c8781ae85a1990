"""Stages that several methods share."""
