"""Timed defragmentation: moves that nobody waits for, if what they make usable is worth what they cost."""
