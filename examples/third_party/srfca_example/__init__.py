"""A method and a data set for srfca, from another package."""
