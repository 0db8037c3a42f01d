"""What will become of jobs: of one before it is submitted or while it waits, and of all at a glance."""
