"""The commands that keep a yard: up, down, status, page, drain, undrain, snapshot, backup, restore."""
