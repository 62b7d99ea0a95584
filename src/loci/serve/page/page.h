// SPDX-License-Identifier: Apache-2.0
// The web page: a chat with the server, and a picture of where its state is. Its files (web/) are part of the
// program. They hold nothing of anybody's: what the page shows it asks the API for, as every client does.
// All of this: thread-safe.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "loci/serve/http/http_message.h"

namespace loci {

struct PageFile {
  std::string_view name;  // "app.js"
  std::string_view content;
};
const std::vector<PageFile>& page_files();

// Whether a file of the page may be at this path: "/", or below "/page/".
bool is_page_path(std::string_view path);

// The answer to a GET or HEAD of a path: the file, or 304 where the client has it. Absent: there is none of
// this name.
std::optional<HttpResponse> page_response(std::string_view path, const HttpRequest& request);

}  // namespace loci
