"""Why a job waits: rungs of the ladder, who is in the way, when it may start, and what would let it run."""
