"""Where this machine meets the driver and people: moments, the archive, plans become deeds, wishes, what breaks."""
