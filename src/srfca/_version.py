"""The version, read by the build and by `srfca --version`."""

__version__ = "0.2.0"
