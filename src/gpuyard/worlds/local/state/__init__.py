"""What is on disk, and in memory as on disk: the store, jobs and attempts, the ledger, what is set aside."""
