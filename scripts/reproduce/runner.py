# SPDX-License-Identifier: Apache-2.0
"""Runs of the simulator, several at once, each kept in build/reproduce by its scenario and program."""
import concurrent.futures
import hashlib
import json
import pathlib
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Failed(Exception):
    """A run ended with an error: one line."""


def contents_of(fields):
    """What is in the files that a scenario names: a run is another one where they have changed."""
    machine = fields.get("machine")
    described = machine if isinstance(machine, dict) else {}
    files = fields.get("trace", {}).get("file"), described.get("file"), described.get("profile")
    return " ".join(hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest() if file and pathlib.Path(file).is_file() else ""
                    for file in files)  # what is not there is refused by the run


class Runner:
    """Leaving its block cancels what has not begun and kills what runs, whether all went well or not. A run is a session of its own:
    Ctrl-C ends a `loci sim` with a report of what it has done, which must not be kept as that of a whole run."""

    def __init__(self, loci, jobs, fresh):
        self.loci, self.fresh, self.folder = loci, fresh, ROOT / "build" / "reproduce"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.program = hashlib.sha256(pathlib.Path(loci).read_bytes()).hexdigest()
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self.lock, self.children, self.stopping = threading.Lock(), set(), False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with self.lock:
            self.stopping = True
            for child in self.children:
                child.kill()
        self.pool.shutdown(wait=True, cancel_futures=True)

    def start(self, name, fields):
        return self.pool.submit(self.run, name, fields)

    def run(self, name, fields):
        text = json.dumps(fields, indent=1, sort_keys=True)
        key = hashlib.sha256((text + self.program + contents_of(fields)).encode()).hexdigest()[:20]
        report = self.folder / f"{key}.json"
        if self.fresh or not report.exists():
            at = self.folder / f"{name.replace(':', '.')}-{key}.scenario.json"
            at.write_text(text)
            begin = time.monotonic()
            self.simulate(name, at, report)
            print(f"  {name}: {time.monotonic() - begin:.1f} s", flush=True)
        return json.loads(report.read_text())

    def simulate(self, name, scenario, report):
        part = pathlib.Path(f"{report}.part")
        with self.lock:
            if self.stopping:
                raise Failed(f"{name}: not begun")
            child = subprocess.Popen([self.loci, "sim", str(scenario), "--output", str(part)], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True, start_new_session=True)
            self.children.add(child)
        _, said = child.communicate()
        with self.lock:
            self.children.discard(child)
        if child.returncode != 0:
            part.unlink(missing_ok=True)
            raise Failed(f"{name}: {' '.join(said.split()) or f'ended with {child.returncode}'}; its scenario: {scenario}")
        part.rename(report)


def wait(futures):
    """Until all are done, or one has failed: raises its error."""
    done, _ = concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
    for future in done:
        future.result()
