"""What telling of a cluster rests on: what is settled for all of it, who is on its nodes, whom budgets cover."""
