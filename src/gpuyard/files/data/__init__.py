"""Facts about the world outside, as tables: GPU models today.

Looked up by the readers of `files`; nothing is decided here.
"""
