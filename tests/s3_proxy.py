"""A TCP proxy in front of the S3 server, which imitates a bad network or a busy server on request."""

import contextlib
import socket
import threading
import time
from typing import Literal

Mode = Literal["pass", "refuse", "hang", "busy", "broken", "deaf"]

_ANSWERS = {"busy": ("503 Slow Down", "SlowDown"), "broken": ("500 Internal Server Error", "InternalError")}


class S3Proxy:
    """Forwards connections to a server, from a port on the loopback.

    Modes: `pass` forwards; `refuse` closes every connection; `hang` takes requests and answers nothing; `busy` and
    `broken` answer 503 SlowDown and 500; `deaf` lets the server do what is asked and cuts off its answer.

    Args:
        host: the server's.
        port: the server's.
    """

    def __init__(self, host: str, port: int):
        self._target = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._mode: Mode = "pass"
        self.cut_after: int | None = None
        """Bytes of an answer after which its connection is cut, once; 0 of any answer, else of a long one."""
        self.lose: bytes | None = None
        """What in a request makes the server's answer to it be lost, once."""
        self.trip: tuple[bytes, Mode, float] | None = None
        """What in a request begins an outage, once: its mode and seconds."""
        self.tripped = threading.Event()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def set(self, mode: Mode) -> None:
        """Behave so from now on; connections that are open break."""
        self._mode = mode
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def outage(self, mode: Mode, seconds: float) -> None:
        """Behave so for a while."""
        self.set(mode)
        self._timer = threading.Timer(seconds, self.set, ["pass"])
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        self.set("refuse")
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        self._open.add(near)
        try:
            with near, contextlib.suppress(OSError):
                if self._mode == "refuse":
                    return
                if self._mode == "hang":
                    while near.recv(1 << 16):
                        pass
                    return
                if self._mode in _ANSWERS:
                    self._answer(near, *_ANSWERS[self._mode])
                    return
                with socket.create_connection(self._target) as far:
                    self._open.add(far)
                    back = threading.Thread(target=self._forward_answers, args=[far, near], daemon=True)
                    back.start()
                    while data := near.recv(1 << 16):
                        if self.lose is not None and self.lose in data:
                            self.lose, self.cut_after = None, 0
                        if self.trip is not None and self.trip[0] in data:
                            (_, mode, seconds), self.trip = self.trip, None
                            self.outage(mode, seconds)
                            self.tripped.set()
                            if mode != "deaf":
                                return
                        far.sendall(data)
                    self._open.discard(far)
        finally:
            self._open.discard(near)

    def _forward_answers(self, far: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(1 << 16):
                if self._mode == "deaf":
                    near.shutdown(socket.SHUT_RDWR)
                    return
                final = not data.startswith(b"HTTP/1.1 100 ")
                if self.cut_after is not None and (len(data) > 1000 or (final and not self.cut_after)):
                    near.sendall(data[: self.cut_after])
                    self.cut_after = None
                    near.shutdown(socket.SHUT_RDWR)
                    return
                near.sendall(data)
            near.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _answer(near: socket.socket, status: str, code: str) -> None:
        near.settimeout(5)
        head = b""
        while b"\r\n\r\n" not in head:
            head += near.recv(1 << 16)
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>Later</Message></Error>"
        if head.startswith(b"HEAD"):
            body = ""
        answer = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
        near.sendall(f"{answer}Connection: close\r\n\r\n{body}".encode())
        near.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            until = time.monotonic() + 1
            while time.monotonic() < until and near.recv(1 << 16):
                pass
