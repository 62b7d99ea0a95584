# SPDX-License-Identifier: Apache-2.0
"""`loci pull`, `list` and `rm` against a registry on this machine.

Broken connections, wrong hashes, redirects to another host, names that lead out of the folder.
"""
import hashlib
import os
import pty
import random
import socket
import subprocess
import tempfile
import threading
from types import SimpleNamespace

from live_client import expect, expect_equal, greedy, read_terminal, Server, wait_until
from pull_server import Registry, Repo

MODEL = os.path.expanduser("~/.cache/loci/models/SmolLM2-135M-Instruct.Q4_1.gguf")


def content(size, seed=1):
    return random.Random(seed).randbytes(size)


class Home:
    """A cache folder of its own and the commands that use it."""

    def __init__(self, binary, registry, token=None):
        self.binary, self.folder = binary, tempfile.TemporaryDirectory()
        self.environment = {**os.environ, "XDG_CACHE_HOME": self.folder.name, "HF_ENDPOINT": registry.url,
                            "HF_TOKEN": token or "", "LOCI_MODEL": "", "LOCI_DEFAULT_MODEL": "", "LOCI_CONFIG": ""}
        self.models = os.path.join(self.folder.name, "loci", "models")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def run(self, *arguments):
        return subprocess.run([self.binary, *arguments], capture_output=True, text=True, timeout=300,
                              env=self.environment)

    def pull(self, *arguments):
        done = self.run("pull", *arguments)
        expect_equal(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def refused(self, *arguments, code=1):
        done = self.run(*arguments)
        expect_equal(done.returncode, code, f"{done.stdout} {done.stderr}")
        return done.stderr.strip().splitlines()[-1]

    def everything(self):
        return sorted(os.path.relpath(os.path.join(folder, name), self.folder.name)
                      for folder, _, names in os.walk(self.folder.name) for name in names)

    def visible(self):
        return [name for name in self.everything() if "/.loci-" not in name]

    def parts(self):
        return [name for name in self.everything() if "/.loci-parts/" in name]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def gguf_repo(size=1_000_000):
    return Repo({"README.md": b"read me", "m-Q4_K_M.gguf": content(size), "m-Q8_0.gguf": content(size, 2)},
                large=["m-Q4_K_M.gguf", "m-Q8_0.gguf"])


def directory_repo():
    return Repo({"config.json": b"{}", "tokenizer.json": b'{"a": 1}', "README.md": b"x",
                 "model-00001-of-00002.safetensors": content(300_000, 3),
                 "model-00002-of-00002.safetensors": content(200_000, 4), "model.safetensors.index.json": b"{}",
                 "onnx/model.onnx": content(1000)},
                large=["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "onnx/model.onnx"])


# --- what is fetched ---

def test_one_file_by_its_quantisation(binary):
    repo = gguf_repo()
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        path = home.pull("o/n:q8_0")
        expect_equal(path, os.path.join(home.models, "o/n/main/m-Q8_0.gguf"), "path")
        expect_equal(read(path), repo.files["m-Q8_0.gguf"], "content")
        expect_equal(home.visible(), ["loci/models/o/n/main/m-Q8_0.gguf"], "files")
        expect_equal(home.parts(), [], "partial files")
        before = len(registry.requests)
        expect_equal(home.pull("o/n:m-Q8_0.gguf"), path, "path again")
        expect_equal(len(registry.requests), before + 1, "a pull of what is there asks for the list alone")
        home.pull("o/n@refs/pr/1")
        expect(os.path.exists(os.path.join(home.models, "o/n/refs%2Fpr%2F1/m-Q4_K_M.gguf")), home.everything())


def test_directory_and_pages(binary):
    repo = directory_repo()
    with Registry({"o/n": repo}, page=3) as registry, Home(binary, registry) as home:
        path = home.pull("o/n")
        for name in ("config.json", "tokenizer.json", "model-00001-of-00002.safetensors",
                     "model-00002-of-00002.safetensors", "model.safetensors.index.json"):
            expect_equal(read(os.path.join(path, name)), repo.files[name], name)
        expect_equal(len(home.visible()), 5, f"files: {home.visible()}")


def test_files_are_fetched_at_once(binary):
    repo = Repo({f"m-Q8_0-0000{i}-of-00003.gguf": content(400_000, i) for i in (1, 2, 3)})
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        all_asked = threading.Barrier(3)
        registry.answer_file = lambda call, *what: all_asked.wait(120) >= 0 and Registry.answer_file(registry, call, *what)
        path = home.pull("o/n", "--connections", "3", "--stall-timeout", "600s")
        for name, data in repo.files.items():
            expect_equal(read(os.path.join(os.path.dirname(path), name)), data, name)
        expect(path.endswith("00001-of-00003.gguf"), path)


def test_changed_repo_is_fetched_again(binary):
    repo = gguf_repo()
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        path = home.pull("o/n")
        repo.files["m-Q4_K_M.gguf"] = content(1_000_000, 9)
        expect_equal(home.pull("o/n"), path, "path")
        expect_equal(read(path), repo.files["m-Q4_K_M.gguf"], "the new content")


def test_a_change_that_was_interrupted_leaves_no_mixture(binary):
    repo = directory_repo()
    first, second = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        path = home.pull("o/n")
        before = repo.files[first]
        repo.files[first], repo.files[second] = content(300_000, 8), content(200_000, 9)  # of the same sizes
        registry.status = {first: [403]}
        home.refused("pull", "o/n", "--connections", "1")
        expect_equal(read(os.path.join(path, first)), before, "nothing was replaced")
        expect("o/n" in home.run("list").stdout, "so the old model is still whole")
        registry.status = {second: [403]}
        home.refused("pull", "o/n", "--connections", "1")
        expect_equal(read(os.path.join(path, first)), repo.files[first], "one of two is new")
        expect("o/n" not in home.run("list").stdout, "neither model is whole")
        expect("`loci pull o/n` fetches it" in home.refused("inspect", "o/n"), "so nobody serves it")
        asked = len(registry.file_requests(first))
        expect_equal(home.pull("o/n"), path, "path")
        expect_equal(read(os.path.join(path, second)), repo.files[second], "the other one came")
        expect_equal(len(registry.file_requests(first)), asked, "what is there is not fetched again")
        expect("o/n" in home.run("list").stdout, "it is whole again")


def test_lost_list_costs_no_download(binary):
    with Registry({"o/n": gguf_repo()}) as registry, Home(binary, registry) as home:
        path = home.pull("o/n")
        os.remove(os.path.join(os.path.dirname(path), ".loci-files.json"))
        home.pull("o/n")
        expect_equal(len(registry.file_requests("m-Q4_K_M.gguf")), 1, "requests for the file")
        expect("o/n:m-Q4_K_M.gguf" in home.run("list").stdout, "it is listed again")


# --- faults ---

def test_broken_connections_are_resumed(binary):
    repo = gguf_repo()
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        registry.cut = {"m-Q4_K_M.gguf": [200_000, 300_000, 0, 100_000]}
        expect_equal(read(home.pull("o/n")), repo.files["m-Q4_K_M.gguf"], "content")
        ranges = [headers.get("Range") for headers in registry.file_requests("m-Q4_K_M.gguf")]
        expect_equal(ranges, [None, "bytes=200000-", "bytes=500000-", "bytes=500000-", "bytes=600000-"], "ranges")


def test_next_pull_goes_on(binary):
    repo = gguf_repo()
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        registry.cut = {"m-Q4_K_M.gguf": [400_000] + [0] * 20}
        message = home.refused("pull", "o/n")
        expect("m-Q4_K_M.gguf" in message, message)
        expect_equal((home.visible(), len(home.parts())), ([], 1), "a part and nothing else")
        registry.cut = {}
        before = len(registry.requests)
        expect_equal(read(home.pull("o/n")), repo.files["m-Q4_K_M.gguf"], "content")
        expect_equal(registry.requests[before + 1][1]["Range"], "bytes=400000-", "range")


def test_killed_pull_goes_on(binary):
    repo = gguf_repo(4_000_000)
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        # Broken off after 600 kB, it asks for the rest, and waits for that until it has been killed.
        registry.cut = {"m-Q4_K_M.gguf": [600_000]}
        was_killed = threading.Event()

        def answer_file(call, *what):
            if "Range" in call.headers:
                was_killed.wait(120)
            Registry.answer_file(registry, call, *what)

        registry.answer_file = answer_file
        process = subprocess.Popen([binary, "pull", "o/n", "--stall-timeout", "600s"], env=home.environment,
                                   stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_until(lambda: len(registry.file_requests("m-Q4_K_M.gguf")) == 2, "it asks for the rest")
        expect("another process" in home.refused("pull", "o/n"), "two pulls at once")
        process.kill()
        process.wait()
        was_killed.set()
        expect_equal(home.visible(), [], "nothing that is not whole is there")
        expect_equal(read(home.pull("o/n")), repo.files["m-Q4_K_M.gguf"], "content")
        expect_equal(registry.file_requests("m-Q4_K_M.gguf")[-1].get("Range"), "bytes=600000-", "it went on")


def test_wrong_content_is_refused_and_removed(binary):
    repo = gguf_repo()
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        for wrong in (content(1_000_000, 7), content(1_000_000)[:-1] + b"x", content(1_000_001)):
            registry.wrong = {"m-Q4_K_M.gguf": wrong}
            message = home.refused("pull", "o/n")
            expect("hash" in message or "longer" in message, message)
            expect_equal(home.visible(), [], "files")
            kept = [name for name in home.parts() if os.path.getsize(os.path.join(home.folder.name, name)) > 0]
            expect_equal(kept, [], "partial files")
        registry.wrong = {}
        expect_equal(read(home.pull("o/n")), repo.files["m-Q4_K_M.gguf"], "content")
    small = Repo({"config.json": b"{}", "model.safetensors": content(1000)}, large=["model.safetensors"])
    with Registry({"o/n": small}) as registry, Home(binary, registry) as home:
        registry.wrong = {"config.json": b"[]"}
        expect("config.json" in home.refused("pull", "o/n"), "git's hash of a small file")


def test_shorter_content_than_listed_ends(binary):
    repo = gguf_repo()
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        registry.wrong = {"m-Q4_K_M.gguf": content(900_000)}
        message = home.refused("pull", "o/n")
        expect("900000 of 1000000" in message or "longer than the file on the server" in message, message)
        expect(len(registry.file_requests("m-Q4_K_M.gguf")) < 12, "a bounded number of requests")
        expect_equal(home.visible(), [], "files")


def test_damaged_part_is_started_over(binary):
    repo = gguf_repo()
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        registry.cut = {"m-Q4_K_M.gguf": [400_000] + [0] * 20}
        home.refused("pull", "o/n")
        with open(os.path.join(home.folder.name, home.parts()[0]), "r+b") as part:
            part.write(b"damage")
        registry.cut = {}
        expect_equal(read(home.pull("o/n")), repo.files["m-Q4_K_M.gguf"], "content")
        expect_equal(registry.file_requests("m-Q4_K_M.gguf")[-1].get("Range"), None, "from the beginning")


def test_servers_that_know_no_ranges(binary):
    repo = gguf_repo()
    for faults in ("no_ranges", "refuse_ranges"):
        with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
            registry.cut = {"m-Q4_K_M.gguf": [400_000]}
            setattr(registry, faults, {"m-Q4_K_M.gguf"})
            expect_equal(read(home.pull("o/n")), repo.files["m-Q4_K_M.gguf"], f"content with {faults}")


def test_errors_of_the_server_are_tried_again(binary):
    repo = gguf_repo()
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        registry.status = {"tree": [503, 429], "m-Q4_K_M.gguf": [500, 502]}
        expect_equal(read(home.pull("o/n")), repo.files["m-Q4_K_M.gguf"], "content")
        registry.status = {"tree": [500] * 20}
        expect("500" in home.refused("pull", "o/n:Q8_0"), "it gives up")
        expect_equal(len(registry.status["tree"]), 15, "tries that were left")


def test_an_error_without_an_end_is_an_error(binary):
    """Whether its body comes fast or in drops: no more of it is read than is of use."""
    for piece, pause in ((b"x" * 65536, 0), (b"x", 0.2)):
        with Registry({"o/n": gguf_repo(1000)}) as registry, Home(binary, registry) as home:
            def answer(call, *_, registry=registry, piece=piece, pause=pause):
                call.send_response(404)
                call.send_header("Connection", "close")
                call.end_headers()
                call.close_connection = True
                try:
                    while not registry.stopping.wait(pause):
                        call.wfile.write(piece)
                except OSError:
                    pass
            registry.stopping = threading.Event()
            registry.answer = answer
            try:
                message = home.refused("pull", "o/n", "--stall-timeout", "5s")  # a busy machine may hold a drop back for a second
            finally:
                registry.stopping.set()
            expect("there is no repository o/n" in message, message)


def test_a_connection_that_stalls_is_given_up(binary):
    repo = gguf_repo(300_000)
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        registry.delay = {"m-Q4_K_M.gguf": 2.5}
        done = home.run("pull", "o/n", "--stall-timeout", "1s")
        expect_equal(done.returncode, 0, done.stderr)
        expect(len(registry.file_requests("m-Q4_K_M.gguf")) > 1, "it was asked for again")


def test_messages_of_what_is_absent_or_closed(binary):
    with Registry({"o/n": gguf_repo(), "o/none": Repo({"x.txt": b"x"}), "o/gated": gguf_repo()},
                  gated=["o/gated"]) as registry, Home(binary, registry) as home:
        for arguments, wanted in ((["o/absent"], "is the name right?"), (["o/n@v9"], "no revision v9"),
                                  (["o/n:Q2_K"], "m-Q8_0.gguf"), (["o/none"], "the repo has neither"),
                                  (["o/gated"], "accept them at")):
            message = home.refused("pull", *arguments)
            expect(wanted in message, f"{arguments}: {message}")
        for arguments, wanted in ((["nonsense"], "expected OWNER/NAME"), (["o/n:../x"], "expected a file"),
                                  (["o/n", "--stall-timeout", "0"], "--stall-timeout: expected a time above 0, found 0")):
            message = home.refused("pull", *arguments, code=2)
            expect(wanted in message, f"{arguments}: {message}")
    with Registry({"o/n": gguf_repo()}, token="secret-1") as registry:
        with Home(binary, registry) as home:
            expect("set HF_TOKEN" in home.refused("pull", "o/n"), "a token is asked for")
        with Home(binary, registry, token="wrong-1") as home:
            message = home.refused("pull", "o/n")
            expect("does not accept HF_TOKEN" in message and "wrong-1" not in message, message)
        with Home(binary, registry, token="secret-1") as home:
            home.pull("o/n")
    with Home(binary, registry) as home:  # that is no more
        expect("connect" in home.refused("pull", "o/n"), "no connection")


def test_errors_say_what_chose_the_registry(binary):
    named = "(HF_ENDPOINT names this registry)"
    with Registry({}) as registry, Home(binary, registry) as home:
        told = home.refused("pull", "o/n")
        expect("there is no repository o/n at " + registry.url in told and told.endswith(named), told)
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # nobody listens there
        url = "http://127.0.0.1:%d" % unheard.getsockname()[1]
        with Home(binary, SimpleNamespace(url=url)) as home:
            told = home.refused("pull", "o/n")
            expect(told.startswith(f"loci pull: {url}: ") and told.endswith(named), told)
    for url in ("huggingface.co", "ftp://huggingface.co", "/"):
        with Home(binary, SimpleNamespace(url=url)) as home:
            told = home.refused("pull", "o/n")
            expect("HF_ENDPOINT: expected a URL of http or https, such as https://huggingface.co, found" in told, told)


def test_token_stays_with_its_host(binary):
    repo = gguf_repo()
    with Registry({"o/n": repo}) as content_host, \
            Registry({"o/n": repo}, content_host=content_host, token="secret-1") as registry, \
            Home(binary, registry, token="secret-1") as home:
        content_host.cut = {"m-Q4_K_M.gguf": [100_000]}
        expect_equal(read(home.pull("o/n")), repo.files["m-Q4_K_M.gguf"], "content")
        expect_equal(len(content_host.requests), 2, "requests at the other host")
        for path, headers in content_host.requests:
            expect("Authorization" not in headers and "secret-1" not in path + str(headers), f"{path} {headers}")
        expect(all("Authorization" in headers for _, headers in registry.requests), "the registry gets the token")


def test_hash_from_the_redirect(binary):
    repo = gguf_repo()
    with Registry({"o/n": repo}) as content_host, Registry({"o/n": repo}, content_host=content_host) as registry, \
            Home(binary, registry) as home:
        registry.hide_hashes = True
        content_host.wrong = {"m-Q4_K_M.gguf": content(1_000_000, 7)}
        expect("hash" in home.refused("pull", "o/n"), "X-Linked-Etag is looked at")
        content_host.wrong = {}
        home.pull("o/n")


def test_redirects_that_do_not_end(binary):
    repo = gguf_repo()
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        class Itself:
            url = registry.url
        registry.repos["content/o"] = repo
        registry.content_host = Itself
        registry.answer_file = lambda call, *_: registry.send(call, 302, b"", {"Location": call.path})
        expect("redirects more than" in home.refused("pull", "o/n"), "it ends")
        registry.answer_file = lambda call, *_: registry.send(call, 302, b"", {"Location": "file:///etc/passwd"})
        expect("redirects to file:///etc/passwd, which is not followed" in home.refused("pull", "o/n"), "no other scheme")
        expect_equal(home.visible(), [], "files")


def test_no_name_leads_out_of_the_folder(binary):
    data = content(1000)
    for name in ("../../../../evil.gguf", "/tmp/evil.gguf", "a/../../evil.gguf", "..\\evil.gguf", "./evil.gguf",
                 "a//evil.gguf", ".loci-files.json", ".loci-parts/evil.gguf", "evil\n.gguf", "..", ""):
        entry = {"type": "file", "path": name, "size": len(data), "oid": "0" * 40,
                 "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}}
        with Registry({"o/n": Repo({name: data}, listed=[entry])}) as registry, Home(binary, registry) as home:
            message = home.refused("pull", "o/n")
            expect("file name" in message, f"{name!r}: {message}")
            expect_equal(home.everything(), [], f"files after {name!r}")
            expect_equal(len(registry.requests), 1, "nothing is fetched")


def test_room_on_the_disk_is_looked_at_first(binary):
    entry = {"type": "file", "path": "m-Q8_0.gguf", "size": 1 << 45, "oid": "0" * 40}
    with Registry({"o/n": Repo({"m-Q8_0.gguf": b"x"}, listed=[entry])}) as registry, Home(binary, registry) as home:
        message = home.refused("pull", "o/n")
        expect("are needed" in message and "are free" in message, message)
        expect_equal(len(registry.file_requests("m-Q8_0.gguf")), 0, "nothing is fetched")


def test_sizes_that_no_file_has_are_refused(binary):
    listed = [{"type": "file", "path": f"m-Q8_0-0000{i}-of-00002.gguf", "size": 1 << 63, "oid": "0" * 40} for i in (1, 2)]
    with Registry({"o/n": Repo({entry["path"]: b"x" for entry in listed}, listed=listed)}) as registry, \
            Home(binary, registry) as home:
        message = home.refused("pull", "o/n")
        expect("m-Q8_0-00001-of-00002.gguf 9223372036854775808 bytes, at most 70368744177664 are allowed" in message, message)
        expect_equal(len(registry.requests), 1, "nothing is fetched")


def test_odd_answers(binary):
    with Registry({}) as registry, Home(binary, registry) as home:
        for body in (b"", b"{}", b"[{}", b'[{"type": "file"}]', b"\xff\xfe", b"[" * 100_000):
            registry.answer = lambda call, body=body: registry.send(call, 200, body)
            home.refused("pull", "o/n")
        expect_equal(home.everything(), [], "files")


# --- list, rm, serve ---

def test_list_and_rm(binary):
    with Registry({"o/n": gguf_repo(), "o/d": directory_repo()}) as registry, Home(binary, registry) as home:
        expect("no models are here" in home.run("list").stdout, "an empty list")
        for name in ("o/n:Q4_K_M", "o/n:Q8_0", "o/d"):
            home.pull(name)
        lines = home.run("list").stdout.splitlines()
        expect_equal([line.split()[0] for line in lines], ["MODEL", "o/d", "o/n:m-Q4_K_M.gguf", "o/n:m-Q8_0.gguf"],
                     "models")
        expect("488.3 KiB" in lines[1] and home.models in lines[1], lines[1])
        removed = home.run("rm", "o/n:Q8_0")
        expect("976.6 KiB freed" in removed.stdout, removed.stdout + removed.stderr)
        expect("is not here" in home.refused("rm", "o/other"), "what is not there")
        home.run("rm", "o/d")
        expect_equal(home.visible(), ["loci/models/o/n/main/m-Q4_K_M.gguf"], "what is left")
        home.run("rm", "o/n")
        expect_equal(home.everything(), [], "everything is gone")
        expect_equal(os.listdir(home.models), [], "folders too")


def test_rm_after_a_pull_that_was_interrupted(binary):
    repo = directory_repo()
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        second = "model-00002-of-00002.safetensors"
        registry.status = {second: [403, 403]}
        home.refused("pull", "o/n", "--connections", "1")
        expect(home.visible(), "some files of the first pull are there")
        home.run("rm", "o/n")
        expect_equal(home.everything(), [], "what the first pull left")
        home.refused("pull", "o/n", "--connections", "1")
        home.pull("o/n")
        repo.files["model-00001-of-00002.safetensors"], repo.files[second] = content(300_000, 8), content(200_000, 9)
        registry.status = {second: [403]}
        home.refused("pull", "o/n", "--connections", "1")
        home.run("rm", "o/n")
        expect_equal(home.everything(), [], "what the second one replaced, and what it did not come to")


def test_serve_pulls_what_is_missing(binary, monkeypatch):
    repo = Repo({"SmolLM2-Q4_1.gguf": read(MODEL), "SmolLM2-Q8_0.gguf": b"x"})
    with Registry({"o/smol": repo}) as registry, Home(binary, registry) as home:
        message = home.refused("serve", "o/smol:Q4_1", "--port", "0", "--pull", "off")
        expect("`loci pull o/smol:Q4_1` fetches it" in message, message)
        expect("fetches it" in home.refused("inspect", "o/smol:Q4_1"), "inspect fetches nothing")
        for name, value in home.environment.items():
            monkeypatch.setenv(name, value)
        flags = ("--threads", "1", "--device-memory", "256MiB")
        for expected in (2, 0):  # the list and the file; then nothing
            before = len(registry.requests)
            with Server(binary, "o/smol:Q4_1", *flags) as server:
                reply = server.post("/v1/chat/completions", greedy("Say hello.", max_tokens=8)).json
                expect(reply["choices"][0]["message"]["content"], "a reply")
            expect_equal(len(registry.requests) - before, expected, "requests")
        expect_equal(home.run("inspect", "o/smol:Q4_1").returncode, 0, "inspect finds it")


def shown_on_a_terminal(binary, home):
    leader, follower = pty.openpty()
    process = subprocess.Popen([binary, "pull", "o/n"], env=home.environment, stderr=follower,
                               stdout=subprocess.DEVNULL)
    os.close(follower)
    shown = read_terminal(leader)
    expect_equal(process.wait(), 0, shown)
    return shown


def test_bar_on_a_terminal(binary):
    repo = gguf_repo()
    for _ in range(10):  # a busy machine may leave the bar out
        with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
            registry.delay = {"m-Q4_K_M.gguf": 0.05}
            shown = shown_on_a_terminal(binary, home)
        if shown.count(b"\r[") >= 3:
            break
    expect(shown.count(b"\r[") >= 3 and b"100%  976.6 KiB of 976.6 KiB" in shown, shown)
    with Registry({"o/n": repo}) as registry, Home(binary, registry) as home:
        lines = home.run("pull", "o/n").stderr.splitlines()
        expect(len(lines) == 2 and "\x1b" not in "".join(lines) and "100%" in lines[1], lines)
