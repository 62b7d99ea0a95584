# SPDX-License-Identifier: Apache-2.0
"""Spans of requests, as a collector of OpenTelemetry gets them from a server and from a front."""
import contextlib
import http.server
import json
import os
import re
import subprocess
import threading
import time

import pytest

from live_client import Server, chat_body, expect, expect_equal, wait_until
from live_cluster import FLAGS, Cluster
from postgres_server import find_binaries

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{CALLER}-00"}


def values_of(attributes):
    """Attributes by their keys; numbers as such."""
    def value(one):
        (kind, content), = one.items()
        if kind == "intValue":
            return int(content)
        return [value(each) for each in content["values"]] if kind == "arrayValue" else content
    return {one["key"]: value(one["value"]) for one in attributes}


class Span:
    def __init__(self, json_span, resource):
        self.trace, self.id, self.parent = json_span["traceId"], json_span["spanId"], json_span.get("parentSpanId")
        self.name, self.kind, self.failed = json_span["name"], json_span["kind"], json_span.get("status") == {"code": 2}
        self.begin, self.end = (int(json_span[name]) for name in ("startTimeUnixNano", "endTimeUnixNano"))
        self.values, self.resource = values_of(json_span["attributes"]), resource

    def __repr__(self):
        return f"{self.name} {self.values}"


class Collector(http.server.ThreadingHTTPServer):
    """Takes OTLP by HTTP, or answers as it is told; a context that ends it."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans, self.paths, self.posts, self.bodies, self.requests = [], set(), 0, [], []
        self.status, self.headers, self.pause = 200, {}, 0
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def take(self, path, body):
        self.posts += 1
        self.paths.add(path)
        if self.status != 200:
            return
        self.bodies.append(body)
        for of_resource in json.loads(body)["resourceSpans"]:
            resource = values_of(of_resource["resource"]["attributes"])
            self.spans += [Span(one, resource) for scope in of_resource["scopeSpans"] for one in scope["spans"]]

    def named(self, name):
        return [span for span in self.spans if span.name == name]

    def wait_for(self, name, count=1):
        wait_until(lambda: len(self.named(name)) >= count, f"{count} spans {name}: {self.spans}")
        return self.named(name)[count - 1]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.server.pause)
        expect_equal(self.headers["Content-Type"], "application/json", "the type of the spans")
        self.server.requests.append(dict(self.headers))
        self.server.take(self.path, body)
        with contextlib.suppress(OSError):  # whoever asked may have gone
            self.send_response(self.server.status)
            for name, value in self.server.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def chat(server, headers=None, **fields):
    body = chat_body("Name three colours.", max_tokens=8, temperature=0, **fields)
    return server.request("POST", "/v1/chat/completions", json.dumps(body), headers or {})


def spans_dropped(server):
    return server.metrics()['loci_trace_spans_total{result="dropped"}']


@pytest.fixture(scope="module")
def collector():
    with Collector() as one:
        yield one


@pytest.fixture(scope="module")
def server(binary, tiny_model, collector, tmp_path_factory):
    store = str(tmp_path_factory.mktemp("traces") / "store.db")
    # Of what brings no trace nothing is traced, so that the tests know each span.
    with Server(binary, tiny_model, *FLAGS, "--traces", collector.url, "--trace-share", "0", "--store", store) as one:
        yield one


def test_a_chat_is_a_span_of_its_callers_trace_with_its_parts_below(server, collector):
    before = time.time_ns()
    usage = chat(server, {**SAMPLED, "X-Request-Id": "traced-1"}).json["usage"]
    call = collector.wait_for("POST /v1/chat/completions")
    after = time.time_ns()  # (a span ends when its reply has been sent, which its client may know before)
    parts = [collector.wait_for(name) for name in ("queue", "prompt", "reply")]
    expect_equal((call.trace, call.parent, call.kind, call.failed), (TRACE, CALLER, 2, False), "whose span")
    wanted = {"http.request.method": "POST", "http.route": "/v1/chat/completions", "http.response.status_code": 200,
              "url.scheme": "http", "gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": usage["prompt_tokens"],
              "gen_ai.usage.output_tokens": usage["completion_tokens"], "gen_ai.response.finish_reasons": ["length"],
              "loci.request_id": "traced-1", "loci.tenant": "default"}
    expect_equal({key: call.values.get(key) for key in wanted}, wanted, "attributes")
    expect("gen_ai.response.model" in call.values, call)
    tokens = sum(call.values["loci.tokens." + source] for source in ("device", "host", "disk", "shared", "computed"))
    expect_equal(tokens, usage["prompt_tokens"], "tokens by their source")
    for part in parts:
        expect_equal((part.trace, part.parent, part.kind), (TRACE, call.id, 1), part.name)
        expect(call.begin <= part.begin <= part.end <= call.end, f"{part} is within its request")
    queue, prompt, reply = parts
    expect(queue.end == prompt.begin and prompt.end == reply.begin, "the parts follow one another")
    # (Of the difference between two clocks a millisecond is taken for none.)
    expect(before - 1_000_000 <= call.begin <= call.end <= after + 1_000_000, f"wall clock: {before} {call.begin} {call.end} {after}")
    expect_equal(call.resource["service.name"], "loci", "the service")
    expect_equal(collector.paths, {"/v1/traces"}, "where spans are sent")
    expect(not any(b"colour" in body for body in collector.bodies), "nobody's text")


def test_requests_choose_whether_they_are_traced(server, collector):
    count = len(collector.spans)
    chat(server, UNSAMPLED)
    chat(server)  # the server's share is 0
    chat(server, {"traceparent": SAMPLED["traceparent"].upper()})  # invalid: as none
    for path in ("/health", "/live", "/metrics", "/", "/nothing"):
        server.get(path, SAMPLED)
    server.get("/v1/models", SAMPLED)
    collector.wait_for("GET /v1/models")
    expect_equal(len(collector.spans), count + 1, f"spans of all these: {collector.spans[count:]}")


def test_a_response_in_the_background_has_a_span_below_its_request(server, collector):
    body = {"input": "Name three colours.", "background": True, "max_output_tokens": 8}
    reply = server.request("POST", "/v1/responses", json.dumps(body), SAMPLED)
    expect_equal(reply.status, 200, reply.text)
    background, call = collector.wait_for("background"), collector.wait_for("POST /v1/responses")
    expect_equal((background.parent, background.trace), (call.id, TRACE), "whose span")
    expect(background.values["gen_ai.usage.output_tokens"] > 0, background)
    wait_until(lambda: any(span.parent == background.id for span in collector.named("reply")), "its parts")


def test_a_refusal_says_its_code(server, collector):
    reply = server.request("POST", "/v1/chat/completions", '{"messages": "private"}', SAMPLED)
    expect_equal(reply.status, 400, reply.text)
    wait_until(lambda: any(span.values["http.response.status_code"] == 400 for span in collector.named("POST /v1/chat/completions")), "its span")
    (call,) = [span for span in collector.named("POST /v1/chat/completions") if span.values["http.response.status_code"] == 400]
    expect(not call.failed and "error.type" in call.values, call)
    expect(not any(b"private" in body for body in collector.bodies), "nobody's text")


def test_traces_begin_here_by_default_and_a_stop_sends_them(binary, tiny_model):
    with Collector() as collector:
        with Server(binary, tiny_model, *FLAGS, environment={"LOCI_TRACES": collector.url + "/otlp?key=1"}) as server:
            chat(server)
            server.process.terminate()
            server.process.wait(120)
        call = collector.wait_for("POST /v1/chat/completions")
        expect_equal(call.parent, None, "a root has no parent")
        expect_equal(collector.paths, {"/otlp?key=1"}, "where spans are sent")


def test_a_collector_that_errs_is_told_once_and_gets_the_rest_later(binary, tiny_model):
    with Collector() as collector:
        collector.status, collector.headers = 503, {"Retry-After": "1"}
        with Server(binary, tiny_model, *FLAGS, "--traces", collector.url) as server:
            expect_equal(chat(server).status, 200, "a chat meanwhile")
            wait_until(lambda: collector.posts >= 2, "a second try")
            expect_equal(chat(server).status, 200, "a chat meanwhile")
            expect_equal(spans_dropped(server), 0, "spans that were dropped")
            collector.status, collector.headers = 200, {}
            collector.wait_for("reply", 2)
            wait_until(lambda: "takes spans again" in server.log_text(), "a line of the log")
            expect_equal(server.log_text().count("does not take spans"), 1, "warnings")
            # (The collector has them before the server knows that it has.)
            wait_until(lambda: server.metrics()['loci_trace_spans_total{result="sent"}'] >= 8, "spans that were sent")


@pytest.mark.parametrize("kind", ["away", "slow"])
def test_a_collector_that_does_not_answer_holds_nobody_up(binary, tiny_model, kind):
    with Collector() as collector:
        collector.pause = 60
        url = collector.url if kind == "slow" else "http://127.0.0.1:1"
        with Server(binary, tiny_model, *FLAGS, "--traces", url) as server:
            expect_equal(chat(server).status, 200, "a chat")
            if kind == "away":
                wait_until(lambda: "does not take spans" in server.log_text(), "a warning")
            else:
                time.sleep(1.5)  # the batch is on its way
            expect_equal(chat(server).status, 200, "a chat")
            begin = time.monotonic()
            server.process.terminate()
            server.process.wait(120)
            expect_equal(server.process.returncode, 0, server.log_text())
            # Two seconds, and what a busy machine adds.
            expect(time.monotonic() - begin < 20, f"it stopped after {time.monotonic() - begin:.1f} s")


def test_wrong_urls_are_refused_at_start(binary, tiny_model):
    for value in ("localhost:4318", "grpc://localhost:4317"):
        done = subprocess.run([binary, "serve", tiny_model, "--port", "0", "--disk", "none", "--traces", value], capture_output=True, text=True, timeout=120)
        expect(done.returncode != 0 and re.search(r"--traces: expected the URL of a collector", done.stderr), done.stderr)


# --- a key, and OpenTelemetry's own variables ---

KEY = "c2VjcmV0Og"  # of the collector's: nobody is to see it
FOR_SPANS = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Basic%20{KEY}==,x-team=a%2Cb",
             "OTEL_SERVICE_NAME": "chats", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test,service.instance.id=pod%201"}


def refusal(binary, tiny_model, *flags, environment=None):
    """What `loci serve` says as it does not start."""
    done = subprocess.run([binary, "serve", tiny_model, "--port", "0", "--disk", "none", *flags], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "LOCI_CONFIG": "", **(environment or {})})
    expect(done.returncode != 0, done.stdout)
    expect(KEY not in done.stdout + done.stderr, done.stderr)
    return done.stderr


def headers_file(tmp_path, text, mode=0o600):
    """Put in the place of the one that is there, as a program that renews keys does."""
    path, new = tmp_path / "headers", tmp_path / "new"
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)
    return str(path)


def test_opentelemetrys_variables_say_where_spans_go_and_with_which_key(binary, tiny_model):
    with Collector() as collector:
        environment = {**FOR_SPANS, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url + "/base/"}
        with Server(binary, tiny_model, *FLAGS, environment=environment) as server:
            chat(server)
            call = collector.wait_for("POST /v1/chat/completions")
            for text in (server.log_text(), server.banner, server.get("/metrics").text, server.get("/health").text):
                expect(KEY not in text, text)
        printed = subprocess.run([binary, "serve", "--print-config"], capture_output=True, text=True, timeout=120,
                                 env={**os.environ, "LOCI_CONFIG": "", **environment})
        expect(f'traces = "{collector.url}/base/v1/traces"  # OTEL_EXPORTER_OTLP_ENDPOINT' in printed.stdout, printed.stdout)
        expect(KEY not in printed.stdout, printed.stdout)
        expect_equal(collector.paths, {"/base/v1/traces"}, "where spans are sent")
        for request in collector.requests:
            expect_equal((request["Authorization"], request["x-team"]), (f"Basic {KEY}==", "a,b"), "headers")
        expect_equal(call.resource["service.name"], "chats", "the service")
        expect_equal((call.resource["deployment.environment"], call.resource["service.instance.id"]), ("test", "pod 1"), "attributes")
        expect(call.resource["service.version"] and call.resource["host.name"], call.resource)


@pytest.mark.parametrize("variables, said", [
    ({}, "OTEL_EXPORTER_OTLP_ENDPOINT alone does not make Loci send spans"),
    ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, 'OTEL_EXPORTER_OTLP_PROTOCOL: expected http/json.*found "grpc"; no spans'),
    ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization: Basic {KEY}"},
     "OTEL_EXPORTER_OTLP_HEADERS: member 1: expected NAME=VALUE, found no '='; no spans"),
], ids=["endpoint", "grpc", "headers"])
def test_variables_that_are_for_all_programs_send_nothing_by_mistake(binary, tiny_model, variables, said):
    with Collector() as collector:
        with Server(binary, tiny_model, *FLAGS, environment={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **variables}) as server:
            expect_equal(chat(server, SAMPLED).status, 200, "a chat")
            expect(re.search(said, server.log_text()), server.log_text())
            expect(KEY not in server.log_text(), server.log_text())
            expect("loci_trace_spans_total" not in server.get("/metrics").text, "spans are counted where there are some")
        expect_equal(collector.posts, 0, "after the stop, which sends what is left")


def test_a_key_of_a_file_is_read_anew(binary, tiny_model, tmp_path):
    with Collector() as collector:
        path = headers_file(tmp_path, f"# of the collector\nAuthorization: Bearer {KEY}-1\n")
        with Server(binary, tiny_model, *FLAGS, "--traces", collector.url, "--trace-headers", path) as server:
            chat(server)
            collector.wait_for("reply")
            expect_equal(collector.requests[-1]["Authorization"], f"Bearer {KEY}-1", "the first key")
            headers_file(tmp_path, f"Authorization: Bearer {KEY}-2\n", mode=0o644)  # whoever made it forgot that
            chat(server)
            wait_until(lambda: "expected mode 0600" in server.log_text(), "a warning")
            headers_file(tmp_path, f"Authorization: Bearer {KEY}-2\n")
            collector.wait_for("reply", 2)
            expect_equal(collector.requests[-1]["Authorization"], f"Bearer {KEY}-2", "the second key")
            expect_equal(spans_dropped(server), 0, "spans that were dropped")
            collector.status = 401
            chat(server)
            wait_until(lambda: "it answers with status 401 (option trace_headers gives a key)" in server.log_text(), "a warning")
            expect(KEY not in server.log_text(), server.log_text())


def test_a_wrong_key_is_refused_at_start(binary, tiny_model, tmp_path):
    to = ("--traces", "http://127.0.0.1:1")
    said = refusal(binary, tiny_model, *to, "--trace-headers", str(tmp_path / "none"))
    expect_equal(said, f"loci serve: --trace-headers: {tmp_path / 'none'} is not there\n", "a file that is not there")
    path = headers_file(tmp_path, f"X-Team: a\nAuthorization Bearer {KEY}\n")
    said = refusal(binary, tiny_model, *to, "--trace-headers", path)
    expect_equal(said, f"loci serve: --trace-headers: {path}: line 2: expected NAME: VALUE, found no colon\n", "a line without a colon")
    said = refusal(binary, tiny_model, *to, environment={"OTEL_EXPORTER_OTLP_HEADERS": f"a=1,b={KEY}%0d%0aX-More:1"})
    expect(re.fullmatch(r"loci serve: OTEL_EXPORTER_OTLP_HEADERS: member 2: expected a header's value of [^\n]*\n", said), said)
    said = refusal(binary, tiny_model, "--traces", f"http://ann:{KEY}@127.0.0.1")
    expect(re.fullmatch(r"loci serve: --traces: expected a URL without a user and a password, [^\n]*\n", said), said)


@pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL on this machine")
def test_a_front_reads_the_variables_too(binary, tiny_model, tmp_path, postgres):
    place = Cluster(binary, tiny_model, str(tmp_path), postgres)
    with Collector() as collector:
        variables = {**FOR_SPANS, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": ""}
        with place.front(environment=variables) as front:
            expect_equal(chat(front).status, 503, "a front without members")
            call = collector.wait_for("POST /v1/chat/completions")
            expect_equal((call.resource["service.name"], collector.requests[-1]["Authorization"]), ("loci-front", f"Basic {KEY}=="), "who sends")
            expect(KEY not in front.log_text(), front.log_text())
        with place.front("--traces", "", environment=variables) as front:
            chat(front)
            expect("loci_trace_spans_total" not in front.get("/metrics").text, "the flag goes before the variables")


@pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL on this machine")
def test_a_front_and_its_member_are_in_one_trace(binary, tiny_model, tmp_path, postgres):
    place = Cluster(binary, tiny_model, str(tmp_path), postgres)
    with Collector() as collector, place.server("--traces", collector.url, "--trace-share", "0") as member, \
            place.front("--traces", collector.url) as front:
        front.wait_for(1)
        reply = chat(front, SAMPLED)
        expect_equal(reply.status, 200, reply.text)
        wait_until(lambda: len(collector.named("POST /v1/chat/completions")) == 3, "spans of the front and of the member")
        by_kind = {(span.resource["service.name"], span.kind): span for span in collector.named("POST /v1/chat/completions")}
        outer, attempt, inner = by_kind["loci-front", 2], by_kind["loci-front", 3], by_kind["loci", 2]
        expect_equal([outer.parent, attempt.parent, inner.parent], [CALLER, outer.id, attempt.id], "who is below whom")
        expect_equal({span.trace for span in (outer, attempt, inner)}, {TRACE}, "the trace")
        expect_equal(attempt.values["server.port"], member.port, "whom the front asked")
        # A trace that the front begins: the member, whose share is 0, obeys it.
        chat(front)
        wait_until(lambda: len([span for span in collector.named("reply") if span.trace != TRACE]) == 1, "a trace of the front's")
        wait_until(lambda: front.metrics()['loci_trace_spans_total{result="sent"}'] >= 2, "the front's own count")
