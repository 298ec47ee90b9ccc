"""`python -m torch_bottleneck`: the command, whoever owns the name `bottleneck`."""

from bottleneck.cli.main import main

if __name__ == "__main__":
    main()
