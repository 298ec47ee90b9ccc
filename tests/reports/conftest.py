"""Reports hide the name of the machine; here it is always the same."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.reports.report_machine import HOME, HOST


@pytest.fixture(autouse=True)
def known_machine(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: f"{HOST}.example.org")
    monkeypatch.setattr(Path, "home", lambda: Path(HOME))
