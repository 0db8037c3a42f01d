"""A cluster as a world: pods, nodes, budgets and leases; state in the API server.

Called by the loop in `runtime`. Speaks to the API only through `kube`, keeps no store of its own, and
decides nothing about placement.
"""
