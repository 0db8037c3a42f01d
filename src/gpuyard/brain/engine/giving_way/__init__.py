"""Who gives way to whom: moving, preemption, reclaim, time slicing, repair of broken gangs, growth of elastic ones.

`victims` says who may be disturbed, `claims` by which right, `room_making` searches; nobody stops who need not.
"""
