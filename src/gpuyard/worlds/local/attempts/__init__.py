"""What becomes of jobs: gates before an attempt, its life, giving up, recovery after a crash, housekeeping."""
