"""`python -m adaptive_bench`."""

from adaptive_bench.cli import main

if __name__ == "__main__":
    main()
