"""What should happen: events and `now` go in, a plan comes out.

Called by the loop in `runtime`, and by the command line for plans on a snapshot. Pure and deterministic:
the same input gives the same plan under any hash seed. Not a place for clocks, dice, logging or input and
output.
"""
