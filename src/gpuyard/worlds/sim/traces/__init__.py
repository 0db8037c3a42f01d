"""Workloads that were recorded somewhere, and their readers: what comes when, and how much work it is."""
