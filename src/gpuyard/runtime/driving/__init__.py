"""When it happens: one turn (`loop`), the driver that turns it, its pace, its journal, the way back from a failure."""
