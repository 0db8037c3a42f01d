"""When it happens: the one loop (observe, decide, apply, record), the clock, journal and ledger.

Called by `server` and the command line. The only place where real time enters. It moves values between
world and brain; it has no opinion on them.
"""
