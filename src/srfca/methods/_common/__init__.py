"""What methods share: parameters, rounds, starts, results."""
