"""The commands that run jobs and speak to them: run, submit, logs, wait, attach, and one word to jobs (`verbs`)."""
