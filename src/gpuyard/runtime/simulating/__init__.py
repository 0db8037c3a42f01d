"""Simulated runs, and fleets as they might be: for `yard sim` and `yard whatif`."""
