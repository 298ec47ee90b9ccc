"""Requests of a worker, as its sockets show them, with real servers in this process, and in invented time."""

import asyncio
import http.client
import itertools
import socket
import ssl
import sys
import threading
import time
import types
import urllib.error
import urllib.request
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bottleneck.loader.observing.network import NetworkWatch
from tests.loader.observer_bench import Photos, benches, observe, patience

BODY = bytes(range(256)) * 40

make = pytest.fixture(benches)
patient = pytest.fixture(autouse=True)(patience)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(429 if self.path == "/often" else 200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *args):
        pass


@pytest.fixture
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address
    server.shutdown()
    thread.join()
    server.server_close()


def watch():
    return NetworkWatch(lambda: (time.perf_counter(), time.process_time()), lambda: "load")


def url(address, path="/"):
    return f"http://{address[0]}:{address[1]}{path}"


def read(address, path="/"):
    with urllib.request.urlopen(url(address, path)) as answer:
        return answer.read()


def test_requests_connections_and_bytes_are_counted(address):
    seen = watch()
    seen.start()
    for _ in range(3):
        assert read(address) == BODY
    spent = seen.stop()
    assert (spent.requests, spent.connections, spent.refused) == (3, 3, 0)
    assert 3 * len(BODY) < spent.nbytes < 3 * (len(BODY) + 1000)
    assert set(spent.stages) == {"load"}
    assert spent.stages["load"] == pytest.approx(spent.in_flight_s)
    assert 0 < spent.open_s <= spent.in_flight_s * 1.001


def test_a_kept_connection_is_opened_once(address):
    seen = watch()
    with closing(http.client.HTTPConnection(*address)) as connection:
        seen.start()
        for _ in range(4):
            connection.request("GET", "/")
            assert connection.getresponse().read() == BODY
        spent = seen.stop()
    assert (spent.requests, spent.connections) == (4, 1)


def test_a_server_that_wants_fewer_requests_is_noticed(address):
    seen = watch()
    seen.start()
    with pytest.raises(urllib.error.HTTPError, match="429") as raised:
        read(address, "/often")
    raised.value.close()
    read(address)
    spent = seen.stop()
    assert (spent.requests, spent.refused) == (2, 1)


def test_clients_of_asyncio_are_seen_and_those_that_run_at_once_are_open_together(address):
    async def get():
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def get_some():
        return await asyncio.gather(*(get() for _ in range(5)))

    seen = watch()
    seen.start()
    answers = asyncio.run(get_some())
    spent = seen.stop()
    assert all(answer.endswith(BODY) for answer in answers)
    assert spent.requests == spent.connections == 5
    assert spent.in_flight_s > spent.open_s


def test_sockets_are_restored(address):
    before = {owner: dict(vars(owner)) for owner in (socket.socket, ssl.SSLSocket)}
    seen = watch()
    seen.start()
    assert "recv" in vars(socket.socket)
    seen.stop()
    seen.stop()
    for owner, names in before.items():
        assert {name: vars(owner)[name] for name in names} == names
        assert set(vars(owner)) == set(names)


def test_sockets_within_the_machine_are_no_network():
    seen = watch()
    seen.start()
    here, there = socket.socketpair()
    with here, there:
        here.sendall(b"ping")
        assert there.recv(10) == b"ping"
        there.sendall(b"pong")
        assert here.recv(10) == b"pong"
    assert seen.stop().requests == 0


# --- in invented time: each look at the clock takes a second, half of it computing -------------------------------


@pytest.fixture
def pair():
    """A client that is not connected yet, and a function that accepts it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        yield client, listener


def ticking():
    ticks = itertools.count(100)
    return NetworkWatch(lambda: (float(tick := next(ticks)), tick / 2), lambda: "load")


def test_time_to_connect_to_the_first_byte_and_of_the_rest(pair):
    client, listener = pair
    seen = ticking()
    seen.start()  # at 100
    client.connect(listener.getsockname())  # 101
    server, _ = listener.accept()
    with server:
        client.sendall(b"give")  # 102
        server.sendall(b"abcd")
        assert client.recv(2) == b"ab"  # 103 to 104
        assert client.recv(2) == b"cd"  # 105 to 106
        spent = seen.stop()
    assert spent.connecting_s == 1.0
    assert (spent.first_byte_s, spent.transfer_s) == (2.0, 2.0)
    assert spent.computing_s == spent.open_s / 2


class Pipe:
    """As WebDataset's: a command whose output is read."""

    def __init__(self, command):
        self.args = ((command,), {})

    def read(self, nbytes):
        return b"x" * nbytes


def test_a_command_with_a_url_is_a_request_and_its_pipe_the_answer(monkeypatch):
    monkeypatch.setitem(sys.modules, "webdataset.gopen", types.SimpleNamespace(Pipe=Pipe))
    methods = dict(vars(Pipe))
    seen = ticking()
    seen.start()  # at 100
    remote, local = Pipe("curl -s -L 'https://store/000.tar'"), Pipe("cat /data/000.tar")  # 101
    assert (remote.read(100), local.read(100)) == (b"x" * 100, b"x" * 100)  # 102 to 103
    remote.read(50)  # 104 to 105
    spent = seen.stop()
    assert (spent.requests, spent.nbytes, spent.refused) == (1, 150, 0)
    assert (spent.first_byte_s, spent.transfer_s, spent.in_flight_s) == (2.0, 2.0, 4.0)
    assert dict(vars(Pipe)) == methods


def test_an_answer_that_goes_on_in_the_next_batch_is_one_request(pair):
    client, listener = pair
    client.connect(listener.getsockname())
    server, _ = listener.accept()
    with server:
        seen = ticking()
        seen.start()
        client.sendall(b"give")
        socket.socket.send(server, b"abcdef")
        assert client.recv(3) == b"abc"
        first = seen.stop()
        seen.start()
        assert client.recv(3) == b"def"
        second = seen.stop()
    assert first.requests == 1
    assert (second.requests, second.nbytes) == (0, 3)
    assert second.open_s == 1.0


def test_the_observer_adds_up_the_requests_of_its_batches(make, address):
    class Remote(Photos):
        def load(self, index):
            read(address)
            return super().load(index)

    seen = observe(make(Remote()), 3)
    assert seen.network.requests == seen.samples
    assert "recv" not in vars(socket.socket)
