"""Who may start at all, whose turn it is, and on which grounds one comes before another."""
