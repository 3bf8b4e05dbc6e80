"""What the guest is made of: QEMU, a kernel with its modules, busybox, ethtool, programs; Debian's own packages, unpacked below a folder of ours."""

import os
import re
import shutil
import subprocess

from words import Skip, say

MIRROR = "http://deb.debian.org/debian"
# igb has had AF_XDP without a copy since Linux 6.14, and QEMU an igb since 8.0: both are newer than Debian 12.
SUITES = ("bookworm", "bookworm-backports", "trixie-backports")
# What the guest has beside QEMU and the kernel.
NAMES = ("busybox-static", "ethtool", "libmnl0")
# Programs that run in it beside Shunt: this machine's, or else Debian's.
PROGRAMS = {"redis-server": "redis-server", "socat": "socat"}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read()


class Packages:
    def __init__(self, folder):
        self.folder = folder
        self.root = os.path.join(folder, "root")
        self.apt = os.path.join(folder, "apt")
        self.config = os.path.join(self.apt, "apt.conf")
        self.dpdk = os.path.join(folder, "dpdk")

    def fetch(self):
        """Downloads and unpacks, the first time. The system's own packages stay as they are."""
        done = os.path.join(self.folder, "unpacked")
        lacking = [package for name, package in PROGRAMS.items() if not shutil.which(name)]
        wanted = " ".join((*SUITES, *NAMES, *lacking))
        if os.path.exists(done) and set(wanted.split()) <= set(read(done).split()):
            return
        shutil.rmtree(self.root, ignore_errors=True)
        for part in ("lists/partial", "cache/archives/partial", "etc"):
            os.makedirs(os.path.join(self.apt, part), exist_ok=True)
        with open(os.path.join(self.apt, "etc/sources.list"), "w", encoding="ascii") as file:
            file.writelines(f"deb [signed-by={KEYRING}] {MIRROR} {suite} main\n" for suite in SUITES)
        with open(self.config, "w", encoding="ascii") as file:
            file.write(
                f'Dir::State::lists "{self.apt}/lists";\nDir::Cache "{self.apt}/cache";\n'
                f'Dir::Etc::sourcelist "{self.apt}/etc/sources.list";\nDir::Etc::sourceparts "{self.apt}/etc";\n'
                f'Dir::Etc::preferencesparts "{self.apt}/etc";\nAPT::Sandbox::User "root";\n'
            )
        say("fetching QEMU and a kernel (140 MB, once)")
        self.run("update")
        self.run("install", "--yes", "--no-install-recommends", "--download-only", "--target-release", "bookworm-backports", "qemu-system-x86")
        if lacking:
            self.run("install", "--yes", "--no-install-recommends", "--download-only", "--target-release", "bookworm", *lacking)
        self.download(*NAMES, *self.kernel_packages())
        self.unpack(self.root)
        with open(done, "w", encoding="ascii") as file:
            file.write(wanted)

    def fetch_dpdk(self):
        """Debian's DPDK, for building and for the guest."""
        if os.path.exists(os.path.join(self.dpdk, "usr/include/dpdk")):
            return
        say("fetching DPDK (60 MB, once)")
        self.run("install", "--yes", "--no-install-recommends", "--download-only", "--target-release", "bookworm", "libdpdk-dev")
        self.unpack(self.dpdk)

    def programs(self):
        """Where those that run in the guest are."""
        return [shutil.which(name) or os.path.join(self.root, "usr/bin", name) for name in PROGRAMS]

    def libraries(self):
        """Where the system's loader does not look: of programs that are not installed here, and DPDK's."""
        return [self.dpdk_libraries(), *(os.path.join(self.root, part, "x86_64-linux-gnu") for part in ("usr/lib", "lib"))]

    def dpdk_libraries(self):
        return os.path.join(self.dpdk, "usr/lib/x86_64-linux-gnu")

    def unpack(self, root):
        archives = os.path.join(self.apt, "cache/archives")
        for name in sorted(os.listdir(archives)):
            if name.endswith(".deb"):
                subprocess.run(["dpkg-deb", "--extract", os.path.join(archives, name), root], check=True)
                os.unlink(os.path.join(archives, name))

    def run(self, *words):
        environment = dict(os.environ, APT_CONFIG=self.config, LC_ALL="C", DEBIAN_FRONTEND="noninteractive")
        try:
            ran = subprocess.run(["apt-get", "--quiet", *words], env=environment, capture_output=True, text=True, timeout=600, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Skip(f"apt-get {words[0]}: {error}") from error
        if ran.returncode != 0:
            raise Skip(f"apt-get {' '.join(words)}: {(ran.stderr.strip() or ran.stdout.strip()).splitlines()[-1]}")
        return ran.stdout

    def download(self, *names):
        folder = os.getcwd()
        os.chdir(os.path.join(self.apt, "cache/archives"))
        try:
            self.run("download", *names)
        finally:
            os.chdir(folder)

    def kernel_packages(self):
        """The newest kernel of the suites: its image and modules, in one package or in several."""
        environment = dict(os.environ, APT_CONFIG=self.config, LC_ALL="C")
        shown = subprocess.run(
            ["apt-cache", "search", "--names-only", r"^linux-(image|modules|binary|base)-[0-9.]+[^ ]*-amd64$"],
            env=environment, capture_output=True, text=True, check=True,
        ).stdout.split("\n")
        names = [line.split(" ")[0] for line in shown if line]
        releases = {}
        for name in names:
            found = re.fullmatch(r"linux-(image|modules|binary|base)-(([0-9.]+)[^ ]*-amd64)", name)
            if found and "cloud" not in name and "rt" not in name and "dbg" not in name and "unsigned" not in name:
                number = tuple(int(part) for part in found[3].strip(".").split("."))
                releases.setdefault((number, found[2]), []).append(name)
        if not releases:
            raise Skip(f"no kernel for amd64 in {', '.join(SUITES)} of {MIRROR}")
        return releases[max(releases)]

    def release(self):
        return sorted(os.listdir(os.path.join(self.root, "usr/lib/modules")))[-1]

    def kernel(self):
        for path in (f"usr/lib/modules/{self.release()}/vmlinuz", f"boot/vmlinuz-{self.release()}"):
            if os.path.exists(os.path.join(self.root, path)):
                return os.path.join(self.root, path)
        raise Skip(f"no image of kernel {self.release()} below {self.root}")

    def qemu(self):
        """The command line's beginning, and the libraries that it needs."""
        shares = [os.path.join(self.root, "usr/share", part) for part in ("qemu", "seabios")]
        command = [os.path.join(self.root, "usr/bin/qemu-system-x86_64")]
        for share in shares:
            command += ["-L", share]
        return command, {"LD_LIBRARY_PATH": ":".join(self.libraries()[1:])}
