"""The commands that teach the others: demo, tour, schema, completion, version."""
