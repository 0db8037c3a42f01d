"""The commands that ask the brain: why, plan, sim, whatif."""
