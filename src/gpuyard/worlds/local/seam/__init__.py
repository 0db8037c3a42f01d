"""What the driver sees of this machine besides its events: whole moments, and an archive."""
