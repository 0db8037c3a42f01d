"""What a settled plan amounts to: who stays where it stood, the net actions, and the bill."""
