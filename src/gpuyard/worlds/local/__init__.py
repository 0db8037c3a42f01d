"""This machine as a world: real processes on real GPUs, or on virtual ones; state in SQLite.

Called by the loop in `runtime`. Not a toy: it is the embedded default. It decides nothing about placement.
"""
