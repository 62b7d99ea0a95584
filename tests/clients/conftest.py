# SPDX-License-Identifier: Apache-2.0
"""The official clients against the live server; their versions: scripts/clients.sh.

The model is small, so what is looked at is the shape and validity of what it says, not its sense. The server has a key,
so that the clients' ways of sending one are used.
"""
import pytest

from checks import KEY


@pytest.fixture(scope="module")
def server(shared_server, binary, model):
    return shared_server.get(binary, model, "--device-memory", "192MiB", "--context", "2048", environment={"LOCI_API_KEY": KEY})


@pytest.fixture(scope="module")
def url(server):
    return server.url
