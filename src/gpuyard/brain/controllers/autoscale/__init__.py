"""How many nodes a pool should have: more for who waits, fewer where nobody is.

Called by `brain.decide` as one controller. It says how many; buying and giving back is the world's, and the emptying
of nodes is left to `engine.settling.evacuation`.
"""
