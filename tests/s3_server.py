# SPDX-License-Identifier: Apache-2.0
"""An S3 server of a suite's own, ended with the suite: SeaweedFS, which verifies signatures (scripts/clients.sh s3)."""
import contextlib
import datetime
import hashlib
import hmac
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import urllib.parse

from live_client import expect, expect_equal, wait_until
from redis_server import free_port

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "s3-venv", "bin", "weed")
OWNER = ("LOCIOWNER", "secret/of+the/owner")
READER = ("LOCIREADER", "secret/of+a/reader")
BUCKET = "loci-state"


class S3Server:
    """On one port with HTTP and on another with HTTPS, whose certificate is in the file `certificate`."""

    def __init__(self, folder):
        self.folder, self.process, self.may_move = str(folder), None, True
        self.certificate, self.key = self.make_certificate("trusted")
        self.choose_ports()

    def choose_ports(self):
        # SeaweedFS listens 10,000 above each of them too.
        master, volume, filer, self.port, self.tls_port = (free_port(above=10000) for _ in range(5))
        config = os.path.join(self.folder, "s3.json")
        identities = [{"name": "owner", "credentials": [{"accessKey": OWNER[0], "secretKey": OWNER[1]}], "actions": ["Admin"]},
                      {"name": "reader", "credentials": [{"accessKey": READER[0], "secretKey": READER[1]}],
                       "actions": [f"Read:{BUCKET}", f"List:{BUCKET}"]}]
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"identities": identities}, file)
        self.command = [PROGRAM, "-logtostderr=true", "server", f"-dir={self.folder}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}",
                        f"-volume.port={volume}", f"-filer.port={filer}", "-master.volumeSizeLimitMB=64", "-volume.max=20", "-s3",
                        f"-s3.config={config}", "-s3.autoCreateBucket=false", "-s3.domainName=localhost", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.port={self.port}",
                        f"-s3.port.https={self.tls_port}", f"-s3.cert.file={self.certificate}", f"-s3.key.file={self.key}"]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.url = f"s3://{BUCKET}/some/place?endpoint={self.endpoint}"
        self.tls_url = self.url.replace(self.endpoint, f"https://127.0.0.1:{self.tls_port}")

    def make_certificate(self, name):
        """The paths of a certificate for this machine, which signs itself, and of its key."""
        certificate, key = (os.path.join(self.folder, f"{name}.{kind}") for kind in ("pem", "key"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                        "/CN=store", "-addext", f"subjectAltName=IP:127.0.0.1,DNS:{BUCKET}.localhost", "-out", certificate, "-keyout", key],
                       check=True, stderr=subprocess.DEVNULL)
        return certificate, key

    def start(self):
        """With nothing in it but the bucket; waits until it takes objects. Where it ends at its first start, somebody else took a port."""
        for _ in range(10):
            try:
                self.start_here()
                self.may_move = False
                return self
            except BaseException:
                ended = self.process.poll() is not None
                self.kill()
                if not (ended and self.may_move):
                    raise
                self.choose_ports()
        raise AssertionError(f"the S3 server ended at each of ten starts: {self.folder}/log says why")

    def start_here(self):
        # What one that was killed remembers would make it wait for an election.
        shutil.rmtree(os.path.join(self.folder, "data"), ignore_errors=True)
        os.makedirs(os.path.join(self.folder, "data"))
        with open(os.path.join(self.folder, "log"), "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.folder)
        wait_until(self.is_ready, "the S3 server answers")

    def is_ready(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            expect(self.process.poll() is None, "the S3 server ended")
            has_bucket = self.ask("PUT", f"/{BUCKET}")[0] in (200, 409)
            return has_bucket and self.ask("PUT", f"/{BUCKET}/is/writable", b"yes")[0] == 200
        return False

    def kill(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(120)
            self.process = None

    def ask(self, method, path, body=b"", query=""):
        """Status and body of the reply to a request that is signed here (AWS Signature Version 4)."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/us-east-1/s3/aws4_request"
        signed = {"host": f"127.0.0.1:{self.port}", "x-amz-content-sha256": hashlib.sha256(body).hexdigest(), "x-amz-date": now}
        names = ";".join(sorted(signed))
        lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        canonical = "\n".join((method, urllib.parse.quote(path), query, lines, names, signed["x-amz-content-sha256"]))
        text = "\n".join(("AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()))
        key = ("AWS4" + OWNER[1]).encode()
        for part in (*scope.split("/"), text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signed["authorization"] = f"AWS4-HMAC-SHA256 Credential={OWNER[0]}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
            connection.request(method, urllib.parse.quote(path) + ("?" + query if query else ""), body=body, headers=signed)
            reply = connection.getresponse()
            return reply.status, reply.read()

    def names(self):
        """Of the values, below the place that the servers' URL names."""
        status, body = self.ask("GET", f"/{BUCKET}", query="list-type=2&max-keys=1000&prefix=some%2Fplace%2Floci%2F1%2F")
        expect_equal(status, 200, body)
        return sorted(re.findall(r"<Key>([^<]*)</Key>", body.decode()))

    def get(self, name):
        status, body = self.ask("GET", f"/{BUCKET}/{name}")
        expect_equal(status, 200, body[:500])
        return body

    def put(self, name, body):
        expect_equal(self.ask("PUT", f"/{BUCKET}/{name}", body)[0], 200, "written")

    def empty(self):
        for name in self.names():
            expect_equal(self.ask("DELETE", f"/{BUCKET}/{name}")[0], 204, "deleted")
