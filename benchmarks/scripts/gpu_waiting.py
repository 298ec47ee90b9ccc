"""Import what a script needs and begin its device; run it when a line on stdin says which, with its arguments.

Scripts that are to be timed one after the other on a GPU that is there for minutes can thus start at once, before.
"""

import json
import os
import runpy
import sys

import torch
import torchvision  # noqa: F401 - the script imports it


def main():
    """Print a line when all is begun, and wait."""
    if torch.cuda.is_available():
        convolution = torch.nn.Conv2d(3, 8, 3).cuda()
        convolution(torch.rand(2, 3, 32, 32, device="cuda")).sum().backward()
        torch.cuda.synchronize()
    print("ready", flush=True)
    line = sys.stdin.readline()
    if line:
        sys.argv = json.loads(line)
        sys.path[0] = os.path.dirname(sys.argv[0])
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
