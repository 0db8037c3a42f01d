"""Cost against size: one row per benchmark, beside the aim and the peer's figure. Run by `python -m bench`.

Workloads are made in memory from a seed; nothing here is imported by the product, and no benchmark sets a flag that a
user would not.
"""
