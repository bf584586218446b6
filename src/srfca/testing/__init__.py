"""Checks for federations and methods of your own."""
