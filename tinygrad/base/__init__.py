"""Floor 0: what every other floor may use. Knows nothing of graphs, devices' drivers or tensors.

dtype           element types, and how they promote
bits            numbers as the bits that memory holds
errors          every exception, as one tree
settings        every environment variable, as one table
target          what a device can do, as data
helpers         small pure functions
later           modules that are imported when they are first needed
windows         arrays that a device binds in several pieces
replacing       files that are written whole or not at all
locks           a lock that a forked child finds open
endings         a context that Ctrl-C finds ended, or not ended
interrupts      no Ctrl-C is lost in a finaliser
"""
