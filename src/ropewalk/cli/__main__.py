"""`python -m ropewalk.cli` is the command `ropewalk`."""

from ropewalk.cli import main

if __name__ == "__main__":
    main()
