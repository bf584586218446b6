"""The experiments of the SR-FCA paper: what is run, and what was published."""
