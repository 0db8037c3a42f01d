"""How good a node is for the next task: many nodes in columns, few in plain numbers, to the same bits."""
