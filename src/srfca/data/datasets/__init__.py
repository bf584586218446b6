"""Data sets, one file each; importing a file registers its data sets in ``DATASETS``."""
