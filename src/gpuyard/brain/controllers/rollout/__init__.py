"""How the fleet is changed in waves: canary first, budgets kept, a breaker that stops.

Called by `brain.decide` as one controller. It says which nodes are next and whether to go on; it installs
nothing, and the emptying of nodes is left to `engine.settling.evacuation`.
"""
