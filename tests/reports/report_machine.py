"""The machine on which the tests of reports pretend to run."""

HOST, HOME = "build-agent-17", "/home/ada"
