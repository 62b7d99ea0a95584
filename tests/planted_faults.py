# SPDX-License-Identifier: Apache-2.0
"""Plants faults in a clone, so that its tests can be seen to fail (docs/testing.md, "Planted faults").

    python3 tests/planted_faults.py server|memory FOLDER

FOLDER: of a clone that nobody needs. `server`: faults that the parts of `make test` meet which run the server, the simulator,
pages and manifests; `memory`: reads behind a buffer, for the two parts of the address sanitizer.
"""
import os
import sys

OVERREAD = """  const auto planted = std::make_unique<char[]>(16);
  if (planted.get()[16] == 77) std::abort();
"""
# (file, what stands there, what is planted)
FAULTS = {
    "server": [
        ("src/loci/serve/http/exchange.cc", "  const auto reason = http::obsolete_reason",
         '  if (status == 200 && request_.target != "/health" && request_.target != "/metrics") status = 501;\n'
         "  const auto reason = http::obsolete_reason"),
        ("src/loci/cli/sim_command.cc", "  const Result<nlohmann::json> json_in = fields_of(flags);",
         "  return 3;\n  const Result<nlohmann::json> json_in = fields_of(flags);"),
        ("src/loci/cli/pull/file_download.cc", "return hash == file.sha256", "return hash != file.sha256"),
        ("docs/grafana/loci.json", "loci_http_requests_total", "loci_http_request_total"),
        ("deploy/kubernetes/front.yaml", "  name: loci-front", "  nam: loci-front"),
        ("src/loci/base/ascii.h", "// SPDX-License-Identifier: Apache-2.0\n", ""),
        ("src/loci/base/hex.cc", "{", "{ "),
    ],
    "memory": [
        ("src/loci/serve/wire/json_parse.cc", "  const std::string_view prefix = utf8_prefix(text, bytes_max);\n",
         OVERREAD + "  const std::string_view prefix = utf8_prefix(text, bytes_max);\n"),
        ("src/loci/serve/wire/json_parse.cc", "\n#include <", "\n#include <cstdlib>\n#include <memory>\n#include <"),
        ("src/loci/policy/admission.cc", "  const std::uint64_t more = a->second.waiting.size()",
         OVERREAD + "  const std::uint64_t more = a->second.waiting.size()"),
        ("src/loci/policy/admission.cc", "\n#include <", "\n#include <cstdlib>\n#include <memory>\n#include <"),
    ],
}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in FAULTS:
        sys.exit(__doc__)
    for path, old, new in FAULTS[sys.argv[1]]:
        path = os.path.join(sys.argv[2], path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if old not in text:
            sys.exit(f"{path}: expected {old!r}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(old, new, 1))


if __name__ == "__main__":
    main()
