"""What people see: the HTTP API, metrics, the scheduler extender, reports and the dashboard.

Called by the command line (`yard up`, `yard serve`). Shows what the runtime knows and passes on what people
ask for; it decides nothing itself.
"""
