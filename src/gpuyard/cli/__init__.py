"""What people type: `yard` and its commands.

Called by the `yard`, `gpuyard` and `kubectl-yard` scripts. Wires the parts together and draws on the
terminal; heavy imports wait until a command needs them. No scheduling logic lives here.
"""
