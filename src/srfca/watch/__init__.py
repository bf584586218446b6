"""Watch a run while it goes on: its progress and its report, in a browser."""
