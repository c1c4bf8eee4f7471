"""`python -m deformrs` is the command line."""

from deformrs.cli import main

main()
