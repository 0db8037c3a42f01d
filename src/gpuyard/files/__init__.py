"""How things are written down: reading with line numbers, JSON Schema, data tables.

Called by the command line, `server` and the worlds. It turns text into the model's values and back, and
reports every mistake with its place; it makes no decision about what the values mean.
"""
