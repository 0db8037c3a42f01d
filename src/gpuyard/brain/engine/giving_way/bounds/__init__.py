"""Bounds before the search: what it costs at least that somebody leaves, and which sets are worth a try."""
