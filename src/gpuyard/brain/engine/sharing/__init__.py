"""Quotas, limits and fair shares over the queue tree: amounts per queue, and neither jobs nor nodes."""
