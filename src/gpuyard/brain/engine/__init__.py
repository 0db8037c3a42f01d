"""Who runs where: the columnar fleet, what-if transactions, and the scheduling cycle.

Called by `brain.decide` and by the controllers. Start reading at `cycle`. It proposes; it never applies,
and it does not know which world its answer is for.
"""
