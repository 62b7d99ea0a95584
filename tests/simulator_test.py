# SPDX-License-Identifier: Apache-2.0
"""`loci sim` tells what `loci serve` does: the same conversations, more than the device's memory holds, have their state from
the same tiers, and as many tokens are written in a second. simulator_times_test.py looks at how long a reply takes."""
import dataclasses
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import simulator  # noqa: E402

pytestmark = pytest.mark.serve(model="tiny")

# A token of the tiny model is a byte of text, and 256 bytes of state.
TALKS = {"conversations": 40, "turns": 5, "document_tokens": 80, "turn_tokens": 8, "reply_tokens": 12, "think_seconds": 0.8,
         "device_bytes": 2 * simulator.MIB, "host_bytes": 2 * simulator.MIB, "disk_bytes": 64 * simulator.MIB}
LOADS = tuple(simulator.Load(name, rate, **TALKS) for name, rate in (("light", 8), ("busier", 14), ("busiest", 24)))


@pytest.fixture(scope="module")
def comparison(binary, model, tmp_path_factory):
    one = simulator.Comparison(binary, model, tmp_path_factory.mktemp("simulator"), threads=1, context=2048,
                               # Whether loading beats computing again hangs on how busy the machine is.
                               flags=("--restore", "kv"))
    one.measure()
    return one


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_state_comes_from_where_the_simulator_says(comparison, load):
    for number in range(3):  # other programs may keep the server, or who asks it, from running
        result = comparison.compare(dataclasses.replace(load, name=f"{load.name} {number}"))
        print(f"others had {100 * result['others']:.0f} %\n" + simulator.table({load.name: result}))
        sources, _ = simulator.misses(result)
        if not sources:
            break
    assert not sources, simulator.table({load.name: result})
    # Conversations begin and go on when they do, so others hardly change how much is written in a second.
    assert abs(simulator.off(simulator.TIMES[2], result)) < simulator.TIME_PERCENT, simulator.table({load.name: result})
    lower = result["served"]["host"] + result["served"]["disk"]
    assert lower > 10, f"the device holds too much of it for the tiers to matter: {result['served']}"
