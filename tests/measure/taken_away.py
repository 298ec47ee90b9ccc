"""Diagnose a small job where something is missing that Linux has: `taken_away.py FOLDER NAME[+NAME...] ...`.

Each gets a file with the result.
"""

import builtins
import os
import shutil
import signal
import sys
import time
from multiprocessing import get_context, popen_fork
from pathlib import Path

import psutil
import torch  # before anything is taken away: what torch needs of Linux is not the question
from torch.utils.data import Dataset


def _is_of_psutil():
    """psutil reads /proc on Linux; elsewhere it asks the system, and answers all the same."""
    frame = sys._getframe(2)
    while frame is not None:
        if "psutil" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def hide(*folders):
    """Let opening and listing fail below these folders."""

    def refuse(event, args):
        asks = event in ("open", "os.listdir", "os.scandir") and isinstance(args[0], (str, Path))
        if asks and str(args[0]).startswith(folders) and not _is_of_psutil():
            raise FileNotFoundError(2, "taken away", str(args[0]))

    sys.addaudithook(refuse)


def take_dev_shm():
    hide("/dev/shm/torch-bottleneck")  # tensors of torch still travel there
    access, usage = os.access, shutil.disk_usage
    os.access = lambda path, *rest, **named: str(path) != "/dev/shm" and access(path, *rest, **named)

    def of_others(path):
        if str(path) == "/dev/shm":
            raise FileNotFoundError(2, "taken away", path)
        return usage(path)

    shutil.disk_usage = of_others


def take_proc():
    hide("/proc", "/sys/fs/cgroup")


def take_fcntl():
    sys.modules["fcntl"] = None


def take_sigkill():
    popen_fork.Popen.kill = lambda self: self._send_signal(9)  # what multiprocessing has on Windows does without
    for name in ("SIGKILL", "SIGCONT", "SIGRTMAX", "SIGRTMIN", "pthread_kill"):
        delattr(signal, name)


def take_io_counters():
    del psutil.Process.io_counters


def take_affinity():
    for name in ("sched_getaffinity", "sched_setaffinity", "posix_fadvise", "posix_fallocate", "preadv", "O_ACCMODE"):
        delattr(os, name)


def take_thread_clock():
    del time.pthread_getcpuclockid


def take_gil():
    sys._is_gil_enabled = lambda: False


class Numbers(Dataset):
    """Files that are read and augmented; a worker takes 2 ms for a sample."""

    def __init__(self):
        self.transform = self.augment

    def __len__(self):
        return 512

    def augment(self, value):
        time.sleep(0.002)
        return value

    def __getitem__(self, index):
        with builtins.open(__file__, "rb") as file:
            file.read(64)
        return self.transform(torch.full((4,), float(index)))


def diagnose(absent, folder):
    for name in absent.split("+"):
        globals()[f"take_{name}"]()
    import bottleneck

    job = bottleneck.Pipeline(
        dataset=Numbers(), train_step=lambda batch: time.sleep(0.001), device="cpu", batch_size=4, num_workers=1
    )
    (folder / f"{absent}.json").write_text(bottleneck.diagnose(job, budget="2s").to_json())


def main():
    """Run each in a separate process, all at the same time: torch is imported once."""
    folder = Path(sys.argv[1])
    processes = [get_context("fork").Process(target=diagnose, args=(absent, folder)) for absent in sys.argv[2:]]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main()
