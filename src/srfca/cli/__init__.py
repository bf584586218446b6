"""The command line: ``srfca``."""
