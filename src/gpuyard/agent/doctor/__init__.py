"""Whether this machine is set up right for GPU jobs: what `yard doctor` looks at, check by check.

Nothing is changed, and nothing is assumed: what cannot be seen from here is told as such, with the command that would.
"""
