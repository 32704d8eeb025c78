"""The doctor: what on a broker loses, blocks or forgets dead messages, and what mends it.

`look` takes a view of the broker once, by a few listings; every finding is a pure function of that
view (`checks.CHECKS` lists them). Nothing on the broker is changed.
"""
