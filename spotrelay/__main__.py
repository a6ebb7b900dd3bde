"""`python -m spotrelay`: the same as the `spotrelay` command."""

from spotrelay.operator.cli import main

if __name__ == "__main__":
    main()
