"""Recipes: stages that several methods share."""
