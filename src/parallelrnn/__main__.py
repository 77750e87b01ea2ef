"""`python -m parallelrnn`."""

from parallelrnn.cli import main

if __name__ == "__main__":
    main()
