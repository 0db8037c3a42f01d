"""Supervisors brought up, heard and adopted: their orders and containers, burials, who is on which device."""
