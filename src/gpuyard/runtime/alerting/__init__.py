"""What somebody should hear of: what stands now (`standing`), and how it is passed on."""
