"""The guest's first and only file system: busybox, the modules of the cards, and programs with their libraries."""

import gzip
import lzma
import os
import re
import subprocess

from words import Failure

# What gives a card to a program, and DPDK's drivers of the cards with what they need of DPDK.
VFIO = ("vfio_pci", "vfio_iommu_type1")
DPDK_DRIVERS = ("mempool_ring", "bus_pci", "bus_vdev", "net_e1000", "net_vmxnet3", "net_virtio")
# Modules of the cards, each with what it needs. Others are built into Debian's kernel.
DRIVERS = ("igb", "e1000e", "vmxnet3", "virtio_net", "virtio_pci", "8021q")
# The congestion control that testkit's programs choose beside the kernel's own.
CONGESTION = ("tcp_bbr",)
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /run /tmp /var
ln -s /run /var/run
chmod 755 /
mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
mount -t debugfs debug /sys/kernel/debug
for module in $(cat /modules/order); do insmod /modules/$module; done
ip link set lo up
hostname guest
stty -F /dev/ttyS1 raw -echo
exec setsid sh /agent </dev/ttyS1 >/dev/ttyS1 2>&1
"""
AGENT = """export HOME=/tmp PATH=/bin LC_ALL=C
echo ready
last=
while read -r number length line; do
    # A busy guest loses characters on the way, and what is not heard is said again.
    [ $((${#number} + ${#line})) = "$length" ] && [ "$number" != "$last" ] || continue
    last=$number
    echo "@heard $number"
    sh -c "$line" >/tmp/output 2>&1 </dev/null
    status=$?
    cat /tmp/output
    echo "@end $status"
done
"""
# Ends a process, and waits for it a while.
FINISH = """#!/bin/sh
kill $1 2>/dev/null
for n in 1 2 3 4 5 6 7 8 9 10; do
    kill -0 $1 2>/dev/null || exit 0
    sleep 1
done
kill -9 $1 2>/dev/null
exit 0
"""


class Archive:
    """A cpio archive of the kind that the kernel unpacks (Documentation/driver-api/early-userspace/buffer-format.rst)."""

    def __init__(self):
        self.parts = []
        self.names = set()
        self.number = 0

    def add(self, name, mode, content=b""):
        folder = os.path.dirname(name)
        if folder and folder not in self.names:
            self.add(folder, 0o040755)
        if name in self.names:
            return
        self.names.add(name)
        self.number += 1
        self.write(name, mode, content)

    def write(self, name, mode, content):
        fields = (self.number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        self.parts.append(head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4))

    def bytes(self):
        self.write("TRAILER!!!", 0, b"")
        return b"".join(self.parts)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def modules(root, release):
    """Each module's bytes, in an order in which they can be loaded."""
    found = {}
    for folder, _, names in os.walk(os.path.join(root, "usr/lib/modules", release)):
        for name in names:
            stem, dot, suffix = name.partition(".ko")
            if dot:
                found[stem.replace("-", "_")] = (os.path.join(folder, name), suffix)
    ordered = {}

    def load(name):
        if name in ordered or name not in found:
            return
        path, suffix = found[name]
        content = lzma.decompress(read(path)) if suffix == ".xz" else read(path)
        needed = re.search(rb"\0depends=([^\0]*)\0", content)
        for other in (needed[1].decode().split(",") if needed else []):
            load(other.replace("-", "_"))
        ordered[name] = content

    for driver in DRIVERS + VFIO + CONGESTION:
        load(driver)
    return ordered


def libraries(program, packages):
    environment = dict(os.environ, LD_LIBRARY_PATH=":".join(packages.libraries()))
    ran = subprocess.run(["ldd", program], capture_output=True, text=True, check=False, env=environment)
    return re.findall(r"(/\S+) \(0x", ran.stdout)


def add_libraries(archive, program, packages):
    for library in libraries(program, packages):
        name = library.removeprefix(packages.dpdk).removeprefix(packages.root)
        archive.add(name.lstrip("/"), 0o100755, read(os.path.realpath(library)))


def add_dpdk(archive, packages):
    """Its drivers, where the library looks for them: under their whole version, each beside the other libraries too, which need some of them."""
    libraries = packages.dpdk_libraries()
    (folder,) = [name for name in os.listdir(os.path.join(libraries, "dpdk")) if name.startswith("pmds-")]
    place = libraries.removeprefix(packages.dpdk)
    for name in sorted(os.listdir(os.path.join(libraries, "dpdk", folder))):
        found = re.fullmatch(r"(librte_(\w+)\.so\.[0-9]+)\.[0-9]+", name)
        if found and found[2] in DPDK_DRIVERS:
            path = os.path.join(libraries, "dpdk", folder, name)
            archive.add(f"{place}/{found[1]}".lstrip("/"), 0o100755, read(path))
            archive.add(f"{place}/dpdk/{folder}/{name}".lstrip("/"), 0o120777, f"{place}/{found[1]}".encode())
            add_libraries(archive, path, packages)


def build(target, packages, programs, has_dpdk):
    """Writes the image; `programs` has for each of its folders paths on this machine."""
    archive = Archive()
    archive.add("init", 0o100755, INIT.encode())
    archive.add("agent", 0o100755, AGENT.encode())
    archive.add("bin/finish", 0o100755, FINISH.encode())
    for folder in ("proc", "sys", "dev", "tmp", "run"):
        archive.add(folder, 0o040755)
    archive.add("bin/busybox", 0o100755, read(os.path.join(packages.root, "bin/busybox")))
    order = modules(packages.root, packages.release())
    for name, content in order.items():
        archive.add(f"modules/{name}.ko", 0o100644, content)
    archive.add("modules/order", 0o100644, "\n".join(f"{name}.ko" for name in order).encode())
    for place, program in [(place, program) for place, paths in programs.items() for program in paths]:
        stripped = f"{target}.program"
        subprocess.run(["strip", "-o", stripped, program], check=True)
        archive.add(f"{place}/{os.path.basename(program)}", 0o100755, read(stripped))
        os.unlink(stripped)
        add_libraries(archive, program, packages)
    if has_dpdk:
        add_dpdk(archive, packages)
    for name in ("sbin/ethtool", "usr/sbin/ethtool"):
        path = os.path.join(packages.root, name)
        if os.path.exists(path):
            archive.add("bin/ethtool", 0o100755, read(path))
    mnl = os.path.join(packages.root, "usr/lib/x86_64-linux-gnu/libmnl.so.0")
    archive.add("lib/x86_64-linux-gnu/libmnl.so.0", 0o100755, read(os.path.realpath(mnl)))
    if not order:
        raise Failure(f"no modules of kernel {packages.release()}")
    with gzip.open(target, "wb", compresslevel=1) as file:
        file.write(archive.bytes())
