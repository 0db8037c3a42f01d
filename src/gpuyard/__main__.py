"""`python -m gpuyard` is `yard`. Nobody imports this."""

from gpuyard.cli.main import main

if __name__ == "__main__":
    main()
