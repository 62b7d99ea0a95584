# SPDX-License-Identifier: Apache-2.0
"""What the live suites share under pytest: the programs, models and a running server (docs/testing.md).

A module says by `pytestmark = pytest.mark.serve(FLAG..., model=..., program=...)` what its `server` runs with. Modules
of the same flags, one after the other, share one server.
"""
import os
import subprocess

import pytest

from live_client import Server, wait_idle
from live_cluster import Cluster
from postgres_server import Postgres

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def pytest_addoption(parser):
    group = parser.getgroup("loci", "Loci's live suites")
    group.addoption("--loci", help="the server's program, loci-random-model beside it (build/release/loci; gpu_test.py: loci-simulated-gpu)")
    group.addoption("--model", help="what the servers serve: default, tiny (a random one, made anew), or a file (each suite has its own choice)")
    group.addoption("--pairs", type=int, default=1000, help="pairs of requests that tenants_test.py compares in time (%(default)s)")
    group.addoption("--measure", action="store_true", help="hold times to their bounds: on a machine that does nothing else")
    group.addoption("--kills", type=int, default=15, help="how often store_crash_test.py kills a server (%(default)s)")
    group.addoption("--seed", type=int, help="of store_crash_test.py (random) and openapi_test.py (1)")
    group.addoption("--examples", type=int, default=30, help="requests of each kind for each operation in openapi_test.py (%(default)s)")


@pytest.fixture(scope="session", autouse=True)
def own_state_folder(tmp_path_factory):
    """Programs that a test starts by itself keep nothing in the user's own folder, nor meet a server there."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


def serve_mark(request):
    """The module's mark, (flags, fields); nothing where it has none."""
    mark = request.node.get_closest_marker("serve")
    return (mark.args, mark.kwargs) if mark else ((), {})


@pytest.fixture(scope="module")
def binary(request):
    """The path of the server's program."""
    _, fields = serve_mark(request)
    path = request.config.getoption("--loci") or os.path.join(ROOT, "build", "release", fields.get("program", "loci"))
    if not os.access(path, os.X_OK):
        pytest.exit(f"there is no program {path}: build it (scripts/build.sh release loci loci-random-model), or name one by --loci", 4)
    return os.path.abspath(path)


def random_model(request, tmp_path_factory, shape):
    """The path of a random model of that shape."""
    path = str(tmp_path_factory.mktemp("model") / f"{shape}.gguf")
    folder = os.path.dirname(request.config.getoption("--loci") or os.path.join(ROOT, "build", "release", "loci"))
    subprocess.run([os.path.join(folder, "loci-random-model"), path, "--shape", shape], check=True, stdout=subprocess.DEVNULL)
    return path


@pytest.fixture(scope="session")
def tiny_model(request, tmp_path_factory):
    """A tiny random model, whose replies cost next to nothing."""
    return random_model(request, tmp_path_factory, "tiny")


@pytest.fixture(scope="session")
def wide_model(request, tmp_path_factory):
    """Like the tiny one, with keys and values twice as wide as hidden states."""
    return random_model(request, tmp_path_factory, "tiny-wide")


@pytest.fixture(scope="session")
def windows_model(request, tmp_path_factory):
    """The same with layers that see only 128 tokens."""
    return random_model(request, tmp_path_factory, "tiny-windows")


@pytest.fixture(scope="session")
def narrow_model(request, tmp_path_factory):
    """A small one of Gemma 3's kind: of six layers five see only 512 tokens."""
    return random_model(request, tmp_path_factory, "tiny-narrow")


@pytest.fixture(scope="module")
def postgres():
    """A PostgreSQL of the module's own."""
    with Postgres() as database:
        yield database


@pytest.fixture
def fresh(binary, tiny_model, tmp_path, postgres):
    """A cluster without members (live_cluster.Cluster)."""
    return Cluster(binary, tiny_model, str(tmp_path), postgres)


@pytest.fixture(scope="module")
def model(request):
    """What the module's servers serve: --model, else the mark's, else the default model."""
    _, fields = serve_mark(request)
    name = request.config.getoption("--model") or fields.get("model", "default")
    return request.getfixturevalue("tiny_model") if name == "tiny" else name


class SharedServer:
    """One server at a time: the next module of the same flags takes it over, another one ends it."""

    def __init__(self):
        self.key = self.server = None

    def get(self, *arguments, environment=None):
        """live_client.Server's arguments; one that is still up is given again."""
        key = arguments, sorted((environment or {}).items())
        if key != self.key or self.server.process.poll() is not None:
            self.end()
            self.server, self.key = Server(*arguments, environment=environment), key
        return self.server

    def end(self):
        server, self.server, self.key = self.server, None, None
        if server:
            server.__exit__(None)


@pytest.fixture(scope="session")
def shared_server():
    shared = SharedServer()
    yield shared
    shared.end()


@pytest.fixture(scope="module")
def server(request, shared_server, binary, model):
    """A running server (live_client.Server); after the module's last test it must come to rest."""
    running = shared_server.get(binary, model, *serve_mark(request)[0])
    yield running
    wait_idle(running)
