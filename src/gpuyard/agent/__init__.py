"""What each node knows: its GPUs, their topology and health, and the devices it hands out.

Runs on every node, as a daemon or inside the embedded yard. It reports and carries out; it decides nothing,
and it writes nothing about a node other than its own record.
"""
