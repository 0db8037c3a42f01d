"""The state that a plan is made from and made in: the fleet kept up to date by events, and the draft of one cycle.

`fleet` is the picture (`standing` is who stands where, `fleet` itself what events do to that), `transaction` changes it
and undoes that, `draft` is the plan in the making. Decides nothing.
"""
