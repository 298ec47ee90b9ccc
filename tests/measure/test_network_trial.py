"""The pace of requests, and the trial with more workers: what is worth one, and what comes of it."""

import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from bottleneck.loader.observing.meter import Spent
from bottleneck.loader.observing.network import NetworkSpent
from bottleneck.loader.observing.observation import Observation
from bottleneck.measure.evidence.network import describe_network, pace_of
from bottleneck.measure.ladder import Ladder
from bottleneck.measure.ledger import Ledger
from bottleneck.measure.passes import more_requests
from bottleneck.measure.passes.more_requests import expected_s, try_more, workers_to_try
from bottleneck.results.evidence import NetworkPace, NetworkSeen

SPENT = NetworkSpent(
    requests=40, connections=4, refused=1, nbytes=4000, connecting_s=0.4, first_byte_s=16.0, transfer_s=2.0,
    in_flight_s=18.0, open_s=16.0, computing_s=4.0, stages={"load": 17.0, "collate": 1.0},
)  # fmt: skip


def observed(spent=SPENT):
    """Two workers that worked for ten seconds each."""
    return Observation(workers=2, batches=5, samples=20, stages={"load": Spent(18.0), "collate": Spent(2.0)},
                       network=spent)  # fmt: skip


def test_rates_are_those_of_all_workers_together_and_times_those_of_a_request():
    assert pace_of(observed()) == NetworkPace(
        num_workers=2, requests=40, samples_per_s=2.0, requests_per_s=4.0, bytes_per_s=400.0, in_flight=1.8,
        first_byte_s=0.4, transfer_s=0.05, refused=1,
    )  # fmt: skip


def test_requests_are_told_by_sample_with_the_stage_that_sends_them():
    seen = describe_network(observed())
    assert (seen.stage, seen.requests_per_sample, seen.bytes_per_sample) == ("load", 2.0, 200.0)
    assert (seen.connections_per_request, seen.connecting_s) == (0.1, 0.1)
    assert (seen.share, seen.computing_share) == (0.8, 0.25)
    assert seen.job == pace_of(observed())
    assert describe_network(observed(NetworkSpent())) == NetworkSeen()


WAITS = NetworkSeen(stage="load", share=0.9, computing_share=0.1, job=NetworkPace(requests=40, refused=0))


def ledger_of(seen=WAITS, first_batch_s=0.5, raw_s=0.1, device_s=0.02):
    ledger = Ledger({}, {})
    ledger.seconds_per_batch = {Ladder.raw: raw_s, Ladder.device: device_s}.get
    ledger.note(network=seen, first_batch_s=first_batch_s)
    return ledger


def loader_of(num_workers):
    return SimpleNamespace(num_workers=num_workers, workers=(os.getpid(),) * num_workers)


@pytest.mark.parametrize(
    ("workers", "device_s", "tried"),
    [(2, 0.02, 8), (2, 0.04, 6), (2, 0.09, 4), (1, 0.02, 4), (4, 0.01, 16), (8, 0.01, 16), (12, 0.01, 0), (0, 0.02, 0)],
)
def test_as_many_are_tried_as_the_step_needs_up_to_four_times_as_many(monkeypatch, workers, device_s, tried):
    monkeypatch.setattr(more_requests, "free_memory_bytes", lambda: 1 << 50)
    assert workers_to_try(ledger_of(device_s=device_s), loader_of(workers)) == tried


def test_no_more_are_tried_than_there_is_memory_for(monkeypatch):
    monkeypatch.setattr(more_requests, "free_memory_bytes", lambda: 1 << 20)
    assert workers_to_try(ledger_of(), loader_of(2)) == 0


@pytest.mark.parametrize(
    "seen",
    [
        NetworkSeen(),
        NetworkSeen(share=0.3, computing_share=0.1, job=NetworkPace(requests=40, refused=0)),
        NetworkSeen(share=0.9, computing_share=0.8, job=NetworkPace(requests=40, refused=0)),
        NetworkSeen(share=0.9, computing_share=0.1, job=NetworkPace(requests=40, refused=3)),
    ],
)
def test_nothing_is_tried_without_requests_that_wait_nor_where_the_answer_is_known(seen):
    assert expected_s(ledger_of(seen), 2, 0.1) == 0.0


def test_a_trial_that_would_take_long_is_left_out():
    assert expected_s(ledger_of(), 2, 0.1) == pytest.approx(0.5 + 4 * 0.2 + 1.0)
    assert expected_s(ledger_of(first_batch_s=9.0), 2, 0.1) == 0.0
    assert expected_s(ledger_of(), 2, 1.5) == 0.0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"12345678")

    def log_message(self, *args):
        pass


class Remote(Dataset):
    def __init__(self, port):
        self.port = port

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        with urlopen(f"http://127.0.0.1:{self.port}/{index}") as answer:
            return torch.frombuffer(bytearray(answer.read()), dtype=torch.uint8)


@pytest.mark.integration
@pytest.mark.untimed
def test_more_workers_read_for_a_moment_in_a_loader_like_the_users():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        loader = DataLoader(Remote(server.server_address[1]), batch_size=4, num_workers=1, shuffle=True)
        pace = try_more(loader, 3, 0, time.perf_counter)
        server.shutdown()
        thread.join()
    assert pace.num_workers == 3
    assert pace.requests >= 3 * 4
    assert pace.first_byte_s > 0
    assert loader.num_workers == 1
    assert "recv" not in vars(socket.socket)
