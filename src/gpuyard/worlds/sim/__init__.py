"""Virtual time as a world: replays traces, answers what-if, injects faults from a seed.

Called by the loop in `runtime`, which drives it like any other world. Not a second scheduler and not a
model of one: the decisions it shows are those of the real brain.
"""
