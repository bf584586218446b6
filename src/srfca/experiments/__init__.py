"""Experiments: what is run."""
