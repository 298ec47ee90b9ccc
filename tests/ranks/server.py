"""Stands for storage that is reached over the network: answers each byte by so many."""

import socketserver
import sys


class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        while self.request.recv(1):
            self.request.sendall(PART)


if __name__ == "__main__":
    PART = bytes(int(sys.argv[2]))
    with socketserver.ThreadingTCPServer((sys.argv[1], 0), Answer) as server:
        server.daemon_threads = True
        print(f"{server.server_address[0]}:{server.server_address[1]}", flush=True)
        server.serve_forever()
