"""Who may start at all, and whose turn it is."""
