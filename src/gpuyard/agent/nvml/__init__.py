"""NVIDIA's management library, asked from a process that can be killed: it may hang for ever, and then so would we.

`caller` starts the process, `child` is what runs there, `library` is the one door to NVML, `replay` stands in for it.
What comes back are the frozen values of `facts`, in which what is not known says why.
"""
