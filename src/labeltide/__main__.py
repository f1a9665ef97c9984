"""`python -m labeltide` does what the command `labeltide` does."""

from labeltide.cli import main

if __name__ == "__main__":
    main()
