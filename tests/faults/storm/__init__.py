"""The whole system in a storm: producers, consumers and operators at work while faults strike.

    plan       what is published, done and struck, and when: all of it from one seed
    messages   what a message is, and what consumers make of it
    world      the servers, the links to them, and every process that may be killed
    ...        producers, operators, strikes: those who carry the plan out, and note what they did
    settling   the end: everything is mended, and goes on until nothing moves any more
    wiretap    who had which message in hand, and when, by what passes over the links
    accounts   every message is accounted for by identity
    blame      every duplicate by a fault that struck whoever held the message
    liveliness whether anything happened at all

`make faults` runs it; `tests/faults/test_storm.py` has the short run that is part of `make test`.
"""
