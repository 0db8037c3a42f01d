"""The commands that look at a yard or a snapshot: jobs, nodes, queues, free, top, health, report, frag, defrag."""
