"""The dashboard as it is served: the built bundle, ready to use without Node.

Read by `server`. Nothing here is written by hand: the source is in `ui/`.
"""
