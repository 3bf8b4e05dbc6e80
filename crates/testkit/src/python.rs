//! Programs in Python that several tests run, by `python3 -c`.

/// Becomes the user of the first argument, then runs the rest.
pub const AS_USER: &str = "import os, sys
user = int(sys.argv[1])
os.setgroups([])
os.setgid(user)
os.setuid(user)
os.execvp(sys.argv[2], sys.argv[2:])";

/// Answers with what it gets, each connection in a thread, at a port that it prints.
pub const ECHO: &str = "
import socket, threading
listener = socket.create_server(('', 0), backlog=128)
print('port', listener.getsockname()[1], flush=True)
def serve(one):
    try:
        while data := one.recv(65536):
            one.sendall(data)
    except OSError:
        pass
    one.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";

/// Answers with what it gets, at port 8000 of every address.
pub const ECHO_AT_8000: &str = "
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while part := self.request.recv(65536): self.request.sendall(part)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
Server(('0.0.0.0', 8000), Echo).serve_forever()
";

/// Serves the files of a folder over HTTP, each connection in a thread: address, port, folder, backlog.
pub const FILES: &str = "
import http.server, sys
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = int(sys.argv[4])
    daemon_threads = True
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): pass
Server((sys.argv[1], int(sys.argv[2])), lambda *a: Quiet(*a, directory=sys.argv[3])).serve_forever()
";
