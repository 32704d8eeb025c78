"""The consumers that are compared: each gives the messages of one queue to a handler that does
nothing, and acks them one by one as it returns.

Each runs in a process of its own (`python -m bench.consumers`), on the same event loop (uvloop),
with the same prefetch. None is told to ack ahead of its handler.
"""
