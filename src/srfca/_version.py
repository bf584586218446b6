"""The version, read by the build and by `srfca --version`."""

__version__ = "0.1.0"
