"""Adaptation of clusters to data that have changed: concept drift."""

from srfca.methods.adaptation.adapt import adapt

__all__ = ["adapt"]
