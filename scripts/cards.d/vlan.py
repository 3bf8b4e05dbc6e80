"""The far end of a card's cable in a VLAN, for hosts whose kernel has none: tags what a TAP sends, and untags what the card sends.

Beside the cables: vlan.py TAP OWN-SOCKET QEMU'S-SOCKET. Frames of another VLAN, or of none, are dropped and counted; told at the end (SIGTERM).
"""

import fcntl
import os
import select
import signal
import socket
import struct
import sys

NUMBER = 7
TAG = struct.pack("!HH", 0x8100, NUMBER)
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
ADDRESSES_BYTES = 12


def main(name, own, qemu):
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    cable = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    cable.bind(own)
    print("relaying", flush=True)
    others = 0

    def tell(*_):
        sys.exit(f"{others} frames without the tag")

    signal.signal(signal.SIGTERM, tell)
    while True:
        ready, _, _ = select.select([tap, cable], [], [])
        if tap in ready:
            frame = os.read(tap, 65536)
            try:
                cable.sendto(frame[:ADDRESSES_BYTES] + TAG + frame[ADDRESSES_BYTES:], qemu)
            except (ConnectionRefusedError, FileNotFoundError):
                pass  # QEMU is not there yet, or any more.
        if cable in ready:
            frame = cable.recv(65536)
            if frame[ADDRESSES_BYTES:ADDRESSES_BYTES + 4] == TAG:
                os.write(tap, frame[:ADDRESSES_BYTES] + frame[ADDRESSES_BYTES + 4:])
            else:
                others += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
