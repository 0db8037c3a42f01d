"""Tables of jobs, nodes and queues: of a running yard, or of a snapshot; drawn once, or again at every change."""
