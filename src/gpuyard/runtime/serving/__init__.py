"""What people ask and are told: jobs, why, previews, queues, drains, reports; each caller sees what is theirs."""
