"""Which GPUs can be trusted: evidence to state, and state to drain or return.

Called by `brain.decide` as one controller. It weighs evidence that the agents have gathered; it reads no
device itself, and the moving of jobs off a sick GPU is left to `engine.settling.evacuation`.
"""
