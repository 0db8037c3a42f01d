"""From files to the model's values: snapshots, fleets, jobs, submissions, presets; every mistake with its line."""
