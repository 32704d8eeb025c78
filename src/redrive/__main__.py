"""`python -m redrive` is the same command as `redrive`."""

from redrive.cli import main

main()
