"""What a plan leads to, told whole: outlooks, bills, what defragmentation proposes."""
