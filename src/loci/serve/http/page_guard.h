// SPDX-License-Identifier: Apache-2.0
// Which web pages may use the server. A browser runs pages of strangers, and each of them can send requests
// to every address that the browser's machine reaches, this server's too. Two things give such a page away:
//
// - `Origin`, which browsers add to what a page sends: it names the page's own server.
// - `Host`, which names the server that the page believes to talk to. A stranger can let a name of his own
//   resolve to this machine's address (DNS rebinding). To the browser the page is then this server's, so the
//   request may have no foreign Origin. But the name is the stranger's.
//
// Where a key is asked for, neither matters: a page that has no key gets nothing.
//
// A value without I/O. Thread-safe once it is made.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/serve/http/http_message.h"
#include "loci/serve/wire/api_error.h"

namespace loci {

class PageGuard {
 public:
  struct Rules {
    std::vector<std::string> origins;     // whose pages may use the server; "*": everyone's
    std::vector<std::string> host_names;  // by which clients call this server, besides those that are its own
  };

  PageGuard() = default;
  explicit PageGuard(Rules rules);

  // What a server without keys says to this request. Errors: 403 that names the header and the option.
  std::optional<ApiError> check(const HttpRequest& request) const;
  // The half of it that looks at Host alone: of a front, which writes that header anew for the server behind
  // it and leaves Origin to be judged there.
  std::optional<ApiError> check_host(const HttpRequest& request) const;
  // What Access-Control-Allow-Origin says to this request; empty: nothing.
  std::string_view permission(const HttpRequest& request) const;
  // The answers to one path differ by the request's origin.
  bool depends_on_origin() const { return !rules_.origins.empty() && !everyone_; }

 private:
  bool is_own_name(std::string_view host) const;

  Rules rules_;
  bool everyone_ = false;
};

// A browser sent it for a page (or a program that says so).
bool is_from_page(const HttpRequest& request);
// That page came from the very server that the request names.
bool is_from_own_page(const HttpRequest& request);
// "localhost" of "LocalHost:8080", "::1" of "[::1]:80".
std::string host_name_of(std::string_view authority);
// The names themselves, as requests' hosts are compared with them. Errors: kInvalidArgument, of one that no
// request has: with a scheme, a port, a star, or a final dot.
Result<std::vector<std::string>> parse_host_names(std::vector<std::string> names);
// This machine's own name; empty where it has none.
std::string machine_name();

}  // namespace loci
