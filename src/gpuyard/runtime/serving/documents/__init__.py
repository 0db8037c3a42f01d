"""Jobs and nodes as plain documents, with the keys of a snapshot file and what else is known."""
