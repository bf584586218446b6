"""The version, read by the build and by `srfca --version`."""

__version__ = "0.3.0.dev0"
