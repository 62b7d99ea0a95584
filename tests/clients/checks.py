# SPDX-License-Identifier: Apache-2.0
"""What the programs of the official clients share: named checks, a count at the end."""
import sys
import traceback


def expect_raises(kind, call):
    """The exception of this kind that call() must end with."""
    try:
        reply = call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got {reply!r}")


def run_checks(checks):
    """Runs each function of `checks`, prints a line for each and ends the program with "N passed, N failed"."""
    failed = 0
    for check in checks:
        name = check.__name__
        try:
            check()
            print("ok   ", name, flush=True)
        except Exception:  # noqa: BLE001
            failed += 1
            print("FAIL ", name, "\n" + traceback.format_exc(), flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
