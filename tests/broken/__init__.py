"""Each guarantee's code, broken on purpose, to see that a test notices. `make broken` runs it.

    mutations.toml  what is broken, where, and the tests that must notice: a list to add to
    mutation        what a mutation is
    tree            a copy of the code, and an interpreter that runs it, in which it is broken
    trial           tests that are run there, and what became of each

The table in docs/explanation/proof.md has a line for each; tests/unit/test_broken.py sees to that,
and that every text to be broken still stands in the source.
"""
