"""The program that runs one task and outlives the control plane: its output, terminal and confinement."""
