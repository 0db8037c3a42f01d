"""What programs call: the API's Python client, and `progress()` for use inside a job.

Called by users' programs and by the command line. It speaks HTTP to a running yard and must stay light; it
never reaches into the brain or a world.
"""
