"""What is told of runs: tables."""
