"""Where it runs: domains, nodes and devices for a whole gang in what is free. Disturbs nobody."""
