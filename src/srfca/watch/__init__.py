"""Watch a run while it runs: its progress and its report, in a browser."""
