# SPDX-License-Identifier: Apache-2.0
"""What soak.py's clients say: scripts for every API, each a few turns of one talk.

A script is decided by its kind and number alone, seeds of sampling included, so two servers of one model give it the
same replies. An answer is what a client sees of a reply, in one form for whole replies and streams of all APIs: text,
log-probabilities, the reason of its end and the counts of tokens. What was cached is left out: it may differ.
"""
import json
import random

WORDS = ("river castle winter letter window garden music paper silver engine market shadow bridge forest candle "
         "harbour mirror village orchard thunder").split()
PUBLIC = "You are the keeper of a lighthouse on a small island. " * 6
CONTEXT = 1024
CUT = 512  # what truncation drops at once: half of the context
LIMIT = 896  # an eighth of the context is kept for the reply
REGEX = "[a-f]{4,12}( [0-9]{3}){1,3}"


def words(draw, count):
    return " ".join(draw.choice(WORDS) for _ in range(count))


class Script:
    """The turns of one talk: questions, and how each is sampled."""

    def __init__(self, kind, number):
        draw = random.Random(f"{kind}/{number}")
        self.kind, self.number = kind, number
        turns = {"completions": 1, "grammar": 1, "truncated": 8}.get(kind) or draw.randrange(1, 5)
        first = 90 if kind == "truncated" else 20
        self.questions = [f"{kind} {number}.{turn}: {words(draw, first if turn == 0 else draw.randrange(3, 12))}?"
                          for turn in range(turns)]
        self.system = f"{kind} {number}, be brief." if draw.random() < 0.5 else None
        self.sampling = {"temperature": 0} if draw.random() < 0.5 else {"temperature": 1, "seed": draw.randrange(1 << 40)}
        # One in five is long: its client may read slowly, or leave.
        self.tokens = [draw.randrange(60, 120) if draw.random() < 0.2 else draw.randrange(2, 24) for _ in range(turns)]
        self.uses_public, self.choices = draw.random() < 0.4, draw.choice((1, 1, 2))
        self.sends_tokens = draw.random() < 0.3
        self.ids = [draw.randrange(40, 200) for _ in range(draw.randrange(5, 90))]

    @property
    def stored(self):
        return self.kind in ("responses", "conversations", "truncated")

    @property
    def turns(self):
        return len(self.questions)


class Talk:
    """A script being played: what its next request is, and what its replies say."""

    def __init__(self, script):
        self.script, self.turn = script, 0
        self.messages = []
        self.responses = []       # of stored talks: the ended ones, in order
        self.conversation = None

    @property
    def done(self):
        return self.turn == self.script.turns

    def request(self):
        """(path, body) of the next turn."""
        return getattr(self, "_" + self.script.kind)()

    def take(self, reply):
        """The next turn's whole reply has come; the turn's answer."""
        answer = ANSWERS[self.script.kind](reply)
        if self.script.stored:
            self.responses.append(reply)
        elif self.script.kind in ("chat", "messages"):
            self.messages = [*self._asked(), {"role": "assistant", "content": answer["text"]}]
        self.turn += 1
        return answer

    def _asked(self):
        return [*self.messages, {"role": "user", "content": self.script.questions[self.turn]}]

    def _completions(self):
        script = self.script
        text = (PUBLIC if script.uses_public else "") + script.questions[0]
        return "/v1/completions", {"prompt": script.ids if script.sends_tokens else text, "n": script.choices, "logprobs": 2,
                                   "max_tokens": script.tokens[0], "ignore_eos": True, **script.sampling}

    def _chat(self):
        script = self.script
        system = [{"role": "system", "content": script.system}] if script.system else []
        return "/v1/chat/completions", {"messages": system + self._asked(), "logprobs": True, "top_logprobs": 2,
                                        "max_tokens": script.tokens[self.turn], "ignore_eos": True, **script.sampling}

    def _grammar(self):
        return "/v1/chat/completions", {"messages": self._asked(), "logprobs": True, "top_logprobs": 1, "max_tokens": 60,
                                        "guided_regex": REGEX, **self.script.sampling}

    def _messages(self):
        script = self.script
        system = {"system": script.system} if script.system else {}
        return "/v1/messages", {"messages": self._asked(), "max_tokens": script.tokens[self.turn], "ignore_eos": True,
                                **system, **script.sampling}

    def _responses(self):
        script = self.script
        body = {"input": script.questions[self.turn], "max_output_tokens": script.tokens[self.turn],
                "include": ["message.output_text.logprobs"], "top_logprobs": 2, **script.sampling}
        if script.system:
            body["instructions"] = script.system
        if self.conversation:
            body["conversation"] = self.conversation
        elif self.responses:
            body["previous_response_id"] = self.responses[-1]["id"]
        return "/v1/responses", body

    def _conversations(self):
        return self._responses()

    def _truncated(self):
        path, body = self._responses()
        return path, body | {"truncation": "auto"}


# --- answers ---

def of_completions(reply):
    choices = sorted(reply["choices"], key=lambda choice: choice["index"])
    return {"text": [choice["text"] for choice in choices], "logprobs": [choice["logprobs"] for choice in choices],
            "end": [choice["finish_reason"] for choice in choices], "prompt": reply["usage"]["prompt_tokens"],
            "output": reply["usage"]["completion_tokens"]}


def of_chat(reply):
    choice = reply["choices"][0]
    return {"text": choice["message"]["content"], "logprobs": choice["logprobs"]["content"], "end": choice["finish_reason"],
            "prompt": reply["usage"]["prompt_tokens"], "output": reply["usage"]["completion_tokens"]}


def of_messages(reply):
    usage = reply["usage"]
    return {"text": "".join(block["text"] for block in reply["content"]), "end": reply["stop_reason"],
            "prompt": usage["input_tokens"] + usage["cache_read_input_tokens"], "output": usage["output_tokens"]}


def of_response(reply):
    parts = [part for item in reply["output"] for part in item["content"]]
    usage = reply["usage"]
    return {"text": [part["text"] for part in parts], "logprobs": [part["logprobs"] for part in parts],
            "end": (reply["status"], reply["incomplete_details"]), "prompt": usage["input_tokens"],
            "dropped": usage["input_tokens_details"].get("dropped_tokens", 0), "output": usage["output_tokens"]}


ANSWERS = {"completions": of_completions, "chat": of_chat, "grammar": of_chat, "messages": of_messages,
           "responses": of_response, "conversations": of_response, "truncated": of_response}
KINDS = tuple(ANSWERS)


# --- streams, put together to whole replies ---

def join_completions(events):
    choices = {}
    for event in events:
        for piece in event["choices"]:
            choice = choices.setdefault(piece["index"], {"index": piece["index"], "text": "", "logprobs": {}})
            choice["text"] += piece["text"]
            choice["finish_reason"] = piece["finish_reason"] or choice.get("finish_reason")
            for name, values in (piece["logprobs"] or {}).items():
                choice["logprobs"].setdefault(name, []).extend(values)
    return {"choices": list(choices.values()), "usage": events[-1]["usage"]}


def join_chat(events):
    content, logprobs, end = "", [], None
    for event in events:
        for piece in event["choices"]:
            content += piece["delta"].get("content") or ""
            logprobs += (piece.get("logprobs") or {}).get("content") or []
            end = piece["finish_reason"] or end
    return {"choices": [{"message": {"content": content}, "logprobs": {"content": logprobs}, "finish_reason": end}],
            "usage": events[-1]["usage"]}


def join_messages(events):
    begin, end = events[0]["message"]["usage"], events[-2]
    text = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    return {"content": [{"text": text}], "stop_reason": end["delta"]["stop_reason"],
            "usage": begin | {"output_tokens": end["usage"]["output_tokens"]}}


def join_response(events):
    whole = events[-1]["response"]
    shown = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    said = "".join(part["text"] for item in whole["output"] for part in item["content"])
    if shown != said:
        raise AssertionError(f"a stream's pieces are {shown!r}, its last event says {said!r}")
    return whole


JOINS = {"completions": join_completions, "chat": join_chat, "grammar": join_chat, "messages": join_messages,
         "responses": join_response, "conversations": join_response, "truncated": join_response}


def asks_stream(script, body):
    usage = {"stream_options": {"include_usage": True}} if script.kind in ("completions", "chat", "grammar") else {}
    return body | {"stream": True} | usage


def events_of(text):
    """The events of a stream's text, whichever API's."""
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]
