# SPDX-License-Identifier: Apache-2.0
"""A registry of Hugging Face's layout on this machine, with faults that are asked for; the standard library alone."""
import hashlib
import http.server
import json
import threading
import time
import urllib.parse


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    """Files by path. Those in `large` have a sha256 (LFS), the others git's hash."""

    def __init__(self, files, large=None, listed=None):
        self.files = files
        self.large = set(files) if large is None else set(large)
        self.listed = listed  # entries in place of the true ones

    def tree(self):
        if self.listed is not None:
            return self.listed
        out = [{"type": "directory", "path": "sub", "oid": "0", "size": 0}]
        for path, data in self.files.items():
            entry = {"type": "file", "path": path, "size": len(data), "oid": git_sha1(data)}
            if path in self.large:
                entry |= {"oid": "0" * 40,
                          "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}}
            out.append(entry)
        return out


class Registry:
    """Serves repos on a free port; a context. `content_host`: another Registry that file requests are redirected to.

    Faults, each a dictionary by path unless said otherwise:
      cut: a list of byte counts; each request for the path takes one and is broken off after it
      status: a list of statuses to answer first
      wrong: content to send in place of the true one
      no_ranges: a set of paths whose ranges are ignored
      refuse_ranges: a set of paths whose ranges get 416 (once each)
      delay: seconds between pieces
    """

    def __init__(self, repos, content_host=None, token=None, page=0, gated=()):
        self.repos, self.content_host, self.token, self.page, self.gated = repos, content_host, token, page, set(gated)
        self.cut, self.status, self.wrong, self.delay = {}, {}, {}, {}
        self.no_ranges, self.refuse_ranges = set(), set()
        self.hide_hashes = False  # the hash is in X-Linked-Etag alone
        self.requests = []  # (path, headers)
        self.running = self.running_max = 0
        self.lock = threading.Lock()
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                with registry.lock:
                    registry.requests.append((self.path, dict(self.headers)))
                    registry.running += 1
                    registry.running_max = max(registry.running_max, registry.running)
                try:
                    registry.answer(self)
                finally:
                    with registry.lock:
                        registry.running -= 1

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def file_requests(self, path):
        return [headers for target, headers in self.requests if target.partition("?")[0].endswith("/" + path)]

    def answer(self, call):
        url = urllib.parse.urlsplit(call.path)
        parts = [urllib.parse.unquote(part) for part in url.path.strip("/").split("/")]
        if self.token and call.headers.get("Authorization") != f"Bearer {self.token}":
            return self.send(call, 401, b"no")
        if parts[:2] == ["api", "models"]:
            return self.answer_tree(call, "/".join(parts[2:4]), parts[5], urllib.parse.parse_qs(url.query))
        if parts[0] == "content":  # the host that redirects lead to
            return self.answer_file(call, self.repos["/".join(parts[1:3])], "/".join(parts[3:]))
        repo = self.repos.get("/".join(parts[:2]))
        path = "/".join(parts[4:])
        if repo is None or path not in repo.files:
            return self.send(call, 404, b"no such entry", {"X-Error-Code": "EntryNotFound"})
        if self.content_host:
            target = f"{self.content_host.url}/content/{'/'.join(parts[:2])}/{urllib.parse.quote(path)}"
            digest = hashlib.sha256(repo.files[path]).hexdigest()
            return self.send(call, 302, b"", {"Location": target, "X-Linked-Etag": f'"{digest}"'})
        return self.answer_file(call, repo, path)

    def answer_tree(self, call, name, revision, query):
        if name in self.gated:
            return self.send(call, 403, b"gated", {"X-Error-Code": "GatedRepo"})
        statuses = self.status.get("tree", [])
        if statuses:
            return self.send(call, statuses.pop(0), b"")
        if name not in self.repos:
            return self.send(call, 404, b"", {"X-Error-Code": "RepoNotFound"})
        if revision not in ("main", "refs/pr/1"):
            return self.send(call, 404, b"", {"X-Error-Code": "RevisionNotFound"})
        entries = [dict(entry) for entry in self.repos[name].tree()]
        if self.hide_hashes:
            for entry in entries:
                entry.pop("lfs", None)
                entry["oid"] = "hidden"
        headers = {}
        if self.page:
            begin = int(query.get("cursor", ["0"])[0])
            if begin + self.page < len(entries):
                # As behind a mirror: the link names another host.
                link = f"http://192.0.2.1/api/models/{name}/tree/main?recursive=true&cursor={begin + self.page}"
                headers["Link"] = f'<{link}>; rel="next"'
            entries = entries[begin:begin + self.page]
        return self.send(call, 200, json.dumps(entries).encode(), headers)

    def answer_file(self, call, repo, path):
        data = self.wrong.get(path, repo.files[path])
        statuses = self.status.get(path, [])
        if statuses:
            return self.send(call, statuses.pop(0), b"")
        begin, status, headers = 0, 200, {}
        wanted = call.headers.get("Range")
        if wanted and path in self.refuse_ranges:
            self.refuse_ranges.discard(path)
            return self.send(call, 416, b"", {"Content-Range": f"bytes */{len(data)}"})
        if wanted and path not in self.no_ranges:
            begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(data):
                return self.send(call, 416, b"", {"Content-Range": f"bytes */{len(data)}"})
            status, headers = 206, {"Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"}
        cuts = self.cut.get(path, [])
        end = begin + cuts.pop(0) if cuts else len(data)
        call.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data) - begin)}.items():
            call.send_header(name, value)
        call.end_headers()
        try:
            for at in range(begin, min(end, len(data)), 65536):
                call.wfile.write(data[at:min(at + 65536, end)])
                time.sleep(self.delay.get(path, 0))
        except OSError:
            pass
        if end < len(data):
            call.close_connection = True

    def send(self, call, status, body, headers=None):
        call.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            call.send_header(name, value)
        call.end_headers()
        call.wfile.write(body)
