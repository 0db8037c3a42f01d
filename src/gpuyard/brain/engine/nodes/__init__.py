"""What nodes have free, which of them could run one kind of task, how many of it, and how good each is.

Knows nodes and kinds of tasks, and neither jobs nor queues. `columns` is the data, `feasibility` the question.
"""
