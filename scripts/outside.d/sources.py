"""Debian's source packages, from where this machine has its packages, without a change to its settings; and programs made of them."""

import glob
import os
import re
import shutil
import subprocess

FETCH_DEADLINE_S = 300
BUILD_DEADLINE_S = 600


def lacking(*names, headers=()):
    """What is not on this machine of what a suite needs, as a reason to skip it; None where all is there."""
    gone = [name for name in names if not shutil.which(name)]
    gone += [header for header, _ in headers if not os.path.exists(os.path.join("/usr/include", header))]
    wanted = ", ".join(package for header, package in headers if header in gone)
    return f"no {', '.join(gone)}{f' (Debian: {wanted})' if wanted else ''}" if gone else None


def fetch(folder, package, like=None):
    """Unpacks a source package below the folder, with Debian's patches; where it is then.

    Of the version of the program `like`, a package that is installed, if that can be had.
    """
    sources = os.path.join(folder, "sources.sources")
    with open(sources, "w") as file:
        for path in glob.glob("/etc/apt/sources.list.d/*.sources"):
            file.write(re.sub(r"(?m)^Types:.*$", "Types: deb-src", open(path).read()) + "\n")
        for line in one_line_sources():
            file.write(line)
    lists = os.path.join(folder, "lists")
    os.makedirs(os.path.join(lists, "partial"), exist_ok=True)
    options = ["-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=/dev/null", "-o", f"Dir::State::lists={lists}"]
    apt = ["apt-get", "-qq", *options, "-o", "APT::Sandbox::User=root"]
    subprocess.run([*apt, "update"], check=True, cwd=folder, capture_output=True, timeout=FETCH_DEADLINE_S)
    shown = subprocess.run(["apt-cache", *options, "showsrc", package], check=True, capture_output=True, text=True).stdout
    versions = re.findall(r"(?m)^Version: (\S+)$", shown)
    # A mirror may list a version whose files it has not: that of a program that is newer than the rest, or older.
    versions.sort(key=lambda one: one == (like and installed(like)), reverse=True)
    for version in versions:
        got = subprocess.run([*apt, "source", f"{package}={version}"], cwd=folder, capture_output=True, timeout=FETCH_DEADLINE_S)
        if got.returncode == 0:
            return next(path for path in glob.glob(os.path.join(folder, f"{package}-*")) if os.path.isdir(path))
    raise OSError(f"no source package {package} of any version of {', '.join(versions)} can be had")


def installed(package):
    """The version of the source of a package on this machine."""
    line = ["dpkg-query", "-W", "-f", "${source:Version}", package]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def one_line_sources():
    """What sources.list(5) says in its old style, in the new one."""
    for path in ["/etc/apt/sources.list", *glob.glob("/etc/apt/sources.list.d/*.list")]:
        text = open(path).read() if os.path.exists(path) else ""
        for options, uri, suite, components in re.findall(r"(?m)^deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)[ \t]*(.*)$", text):
            signed = re.search(r"signed-by=(\S+)", options)
            by = f"Signed-By: {signed[1]}\n" if signed else ""
            yield f"Types: deb-src\nURIs: {uri}\nSuites: {suite}\n{f'Components: {components}' if components else ''}\n{by}\n"


def build(folder, *lines):
    """Runs commands that make a suite's programs, each in the folder."""
    for line in lines:
        subprocess.run(line, check=True, cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, timeout=BUILD_DEADLINE_S)


def cmake(source, target, *options):
    """Configures a source tree with cmake beside it and makes one target; where it is built."""
    folder = f"{source}-built"
    os.makedirs(folder)
    build(folder, ["cmake", "-DCMAKE_BUILD_TYPE=Release", *options, source], ["make", f"-j{os.cpu_count()}", target])
    return folder


def debian_version(package):
    """The version of the sources that this machine's packages name, without Debian's part."""
    text = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Candidate: (?:\d+:)?([^\s-]+)", text)
    return found[1] if found else "?"
