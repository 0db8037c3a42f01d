"""The scheduler of a cluster, wired: the world of Kubernetes under the one driver, and the same cluster only read."""
