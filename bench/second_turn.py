# SPDX-License-Identifier: Apache-2.0
"""The second turn of a long conversation, through the HTTP server: how long until its first token, and how
many of its tokens had to be computed. The same requests go to `loci serve` and to llama-server."""

import http.client
import json
import random
import socket
import subprocess
import time
from dataclasses import dataclass

START_TIMEOUT_SECONDS = 120
REPLY_TIMEOUT_SECONDS = 300
TEMPLATE_TOKENS = 45  # about what a chat template adds to one message
WORDS = ("the harbour was quiet that morning and a thin mist lay over the water while the boats came home one by "
         "one with their lamps still lit their crews spoke little because the night had been long the catch small "
         "and the wind from the north colder than anyone on shore remembered for that time of the year").split()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server process, from ready to stopped."""

    def __init__(self, command, port):
        self.port = port
        self._command = [str(part) for part in command]

    def __enter__(self):
        try:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL)
        except FileNotFoundError:
            raise SystemExit(f"bench: {self._command[0]} is missing: run 'make build' and 'make peers'")
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise SystemExit(f"bench: the server did not become ready: run it by hand: {' '.join(self._command)}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _ready(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False


@dataclass
class Reply:
    text: str
    first_token_seconds: float
    prompt_tokens: int
    cached_tokens: int


def chat(port, messages, max_tokens):
    """One streamed reply."""
    body = json.dumps({"model": "default", "messages": messages, "max_tokens": max_tokens, "temperature": 0,
                       "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REPLY_TIMEOUT_SECONDS)
    connection.connect()
    start = time.monotonic()
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"bench: the server answered {response.status}: {response.read(300)!r}")
    text, first, usage = "", None, {}
    for line in response:
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        event = json.loads(line[6:])
        usage = event.get("usage") or usage
        for choice in event.get("choices", []):
            content = choice.get("delta", {}).get("content")
            if content:
                first = first or time.monotonic() - start
                text += content
    connection.close()
    if first is None or not usage:
        raise SystemExit("bench: the reply had no text or no usage")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Reply(text, first, usage["prompt_tokens"], cached)


def prose(seed, words):
    """Text that no other seed begins with, so that nothing of it is cached from another round."""
    generator = random.Random(seed)
    return f"Report {seed}: " + " ".join(generator.choice(WORDS) for _ in range(words))


@dataclass
class SecondTurn:
    first_token_seconds: float
    context_tokens: int
    new_tokens: int


def measure(port, seed, conversation_tokens, question_words):
    """One conversation: a first turn of about `conversation_tokens`, then a question."""
    probe = chat(port, [{"role": "user", "content": prose(seed * 2 + 1, 200)}], 1)
    words = int(200 * (conversation_tokens - 64 - TEMPLATE_TOKENS) / (probe.prompt_tokens - TEMPLATE_TOKENS))
    messages = [{"role": "user", "content": prose(seed * 2, words)}]
    first = chat(port, messages, 64)
    messages += [{"role": "assistant", "content": first.text},
                 {"role": "user", "content": "And then? " + " ".join(WORDS[:question_words])}]
    second = chat(port, messages, 16)
    return SecondTurn(second.first_token_seconds, second.cached_tokens, second.prompt_tokens - second.cached_tokens)
