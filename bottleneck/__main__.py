"""`python -m bottleneck`: the command, for launchers that start modules, such as `torchrun -m`."""

from bottleneck.cli.main import main

if __name__ == "__main__":
    main()
