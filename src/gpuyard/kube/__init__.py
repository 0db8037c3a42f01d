"""The one door to the Kubernetes API: client, reflector, object shapes, leases, manifests.

Called by `worlds.kubernetes`, `agent`, `server` and the command line. Knows requests and objects, not
scheduling.
"""
