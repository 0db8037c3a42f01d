"""Simulated runs as text, as one page, and as curves on it."""
