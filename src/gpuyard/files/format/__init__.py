"""What may stand in our files: kinds of values, tables of keys, and the JSON Schema that follows from them."""
