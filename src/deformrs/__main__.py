"""`python -m deformrs` is the command line."""

from deformrs.cli import main

if __name__ == "__main__":  # worker processes import this module too
    main()
