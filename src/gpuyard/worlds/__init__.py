"""Where it happens: each world observes, and applies what the brain has planned.

Called by the loop in `runtime`. A world decides nothing. Worlds do not know each other, and the brain
cannot tell them apart; one test suite runs against all of them.
"""
