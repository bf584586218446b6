"""Rotated digits on Flower."""
