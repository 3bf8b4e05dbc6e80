"""Takes files by PUT and says whether they are what a file of that name is; gives those files by GET. A file that breaks off is compared as far as it came."""

import http.server
import pathlib
import sys

PIECE = 65536


class Sink(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        content = (FOLDER / self.path.strip("/")).read_bytes()
        wanted, at = int(self.headers["Content-Length"]), 0
        is_same = wanted == len(content)
        while at < wanted:
            piece = self.rfile.read1(min(PIECE, wanted - at))
            if not piece:
                break
            is_same &= content[at : at + len(piece)] == piece
            at += len(piece)
        if not is_same:
            with open(FOLDER / "mismatches", "a") as told:
                print(f"{self.path}: other bytes among the first {at}", file=told)
        if at == wanted:
            self.answer(b"same" if is_same else b"other")

    def do_GET(self):
        self.answer((FOLDER / self.path.strip("/")).read_bytes())

    def answer(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    FOLDER = pathlib.Path(sys.argv[3])
    server = http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Sink)
    server.daemon_threads = True
    server.serve_forever()
