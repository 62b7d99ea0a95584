# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server of a suite's own: in a temporary folder, behind a Unix socket (in a place of its own behind TCP too), ended with the suite."""
import contextlib
import glob
import os
import shutil
import signal
import subprocess
import tempfile

from live_client import HERE, wait_until

NOBODY = 65534


def find_binaries():
    """The folder of the newest version's programs; nothing where there are none."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    path = found[-1] if found else shutil.which("initdb")
    return os.path.dirname(os.path.realpath(path)) if path else None


def parent_of(pid):
    """Nothing for a process that has ended meanwhile."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    return None


class Postgres:
    """A context that ends it."""

    def __init__(self, place=HERE):
        self.binaries, self.place = find_binaries(), place
        self.folder = tempfile.mkdtemp(prefix="loci_pg_")
        # PostgreSQL refuses to be root.
        self.drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"] if os.geteuid() == 0 else []
        if self.drop:
            os.chown(self.folder, NOBODY, NOBODY)
        self.log = open(os.path.join(self.folder, "log"), "wb")
        self.databases = 0
        self.process = None
        subprocess.run([*self.drop, self.program("initdb"), "-D", self.data, "-U", "loci", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8",
                        "--no-sync"], check=True, stdout=self.log, stderr=self.log)
        if place is not HERE:
            with open(os.path.join(self.data, "pg_hba.conf"), "a", encoding="utf-8") as rules:
                rules.write("host all all 0.0.0.0/0 trust\n")
        self.start()

    @property
    def data(self):
        return os.path.join(self.folder, "data")

    def program(self, name):
        return os.path.join(self.binaries, name)

    def start(self):
        # Nothing here outlives the machine, so nothing is synchronised with the disk.
        listen = "" if self.place is HERE else self.place.host
        self.process = subprocess.Popen([*self.place.enter, *self.drop, self.program("postgres"), "-D", self.data, "-k", self.folder, "-c",
                                         f"listen_addresses={listen}", "-c", "fsync=off", "-c", "shared_buffers=16MB"], stdout=self.log,
                                        stderr=self.log)
        ready = [self.program("pg_isready"), "-q", "-h", self.folder, "-U", "loci"]
        wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, "PostgreSQL answers")

    def stop(self):
        """At once: its clients' connections break."""
        if self.process:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(120)
        self.process = None

    @contextlib.contextmanager
    def frozen(self):
        """Meanwhile none of its processes runs; its clients' connections stay."""
        stopped = [self.process.pid, *(int(pid) for pid in os.listdir("/proc") if pid.isdigit() and parent_of(pid) == self.process.pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)

    def sql(self, statement, database="postgres"):
        """What psql prints of it, without headings."""
        done = subprocess.run([self.program("psql"), "-X", "-q", "-At", "-h", self.folder, "-U", "loci", "-d", database, "-v", "ON_ERROR_STOP=1",
                               "-c", statement], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def new_database(self):
        """Its name."""
        name = f"test{self.databases}"
        self.databases += 1
        self.sql(f"CREATE DATABASE {name}")
        return name

    def url(self, database):
        if self.place is not HERE:
            return f"postgresql://loci@{self.place.host}/{database}"
        return f"postgresql:///{database}?host={self.folder}&user=loci"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
