"""The embedded yard: the local world, its driver and what is served, wired together over one state folder."""
