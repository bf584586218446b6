"""Adaptation of clusters to data that has changed: concept drift."""

from srfca.methods.adaptation.adapt import adapt
from srfca.methods.adaptation.alarms import DriftAlarm, drift_alarms

__all__ = ["DriftAlarm", "adapt", "drift_alarms"]
