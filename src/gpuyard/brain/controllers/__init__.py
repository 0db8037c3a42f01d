"""What else changes, beside starting jobs: deadlocks, time limits, scaling, health, rollouts.

Called by `brain.decide` in a fixed order, each seeing the actions of the earlier ones as applied. A
controller is `decide(memory, fleet, now) -> (memory, actions)`. Controllers do not know each other.
"""
