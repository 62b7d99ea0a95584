# SPDX-License-Identifier: Apache-2.0
"""What openapi_test.py's requests have in common, for schemathesis (SCHEMATHESIS_HOOKS).

A valid request is seldom one that is served: its model is any string, and stream_options are only allowed with
stream. Both are put right where they are valid by themselves, so that a request that breaks the document still does.
"""
import schemathesis


@schemathesis.hook
def map_body(context, body):
    if not isinstance(body, dict):
        return body
    if isinstance(body.get("model"), str):
        body = {**body, "model": "default"}
    options = body.get("stream_options")
    if isinstance(options, dict) and isinstance(options.get("include_usage"), (bool, type(None))) and "stream" not in body:
        body = {**body, "stream": True}
    return body
