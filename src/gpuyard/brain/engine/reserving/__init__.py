"""Room kept for a blocked gang: when it could start, what is held free for it, and who may use the gap meanwhile."""
