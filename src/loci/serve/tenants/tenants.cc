// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tenants/tenants.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <sys/stat.h>

#include <cstdlib>
#include <map>
#include <string_view>

#include "loci/base/ascii.h"
#include "loci/serve/files/text_file.h"

namespace loci {
namespace http = boost::beast::http;

namespace {

std::vector<std::string> split_keys(const char* text) {
  std::vector<std::string> keys;
  std::string_view left = text == nullptr ? "" : text;
  while (!left.empty()) {
    const std::size_t end = left.find_first_of(", \t\n");
    if (end != 0) keys.emplace_back(left.substr(0, end));
    left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
  }
  return keys;
}

ApiError unauthorized(std::string message) {
  return {.http_status = 401,
          .type = "authentication_error",
          .message = std::move(message),
          .param = {},
          .code = "invalid_api_key",
          .retry_after_seconds = {}};
}

}  // namespace

std::string_view api_key_of(const HttpRequest& request) {
  const std::string_view value = request.header("Authorization");
  const std::size_t space = value.find(' ');
  if (equal_ascii(value.substr(0, space), "bearer") && space != std::string_view::npos) {
    const std::size_t begin = value.find_first_not_of(' ', space);
    return begin == std::string_view::npos ? std::string_view() : value.substr(begin);
  }
  return request.header("X-Api-Key");
}

KeySources keys_of_environment() {
  return {.file = {},
          .keys = split_keys(std::getenv("LOCI_API_KEY")),
          .operator_keys = split_keys(std::getenv("LOCI_OPERATOR_KEY"))};
}

Status Tenants::open(KeySources sources, std::shared_ptr<spdlog::logger> log) {
  sources_ = std::move(sources);
  log_ = std::move(log);
  if (sources_.empty()) return {};
  if (!sources_.file.empty()) watch_.look({sources_.file});
  LOCI_RETURN_IF_ERROR(read());
  warn_of_writers();
  closed_ = true;
  if (!sources_.file.empty()) watch_.start([this] { return read_again(); });
  return {};
}

Status Tenants::read() {
  KeysFile file;
  if (!sources_.file.empty()) {
    // At the start it may be a pipe.
    LOCI_ASSIGN_OR_RETURN(const std::string text,
                          closed_ ? read_text_file_again(sources_.file) : read_text_file(sources_.file));
    Result<KeysFile> parsed = parse_keys_file(text);
    if (!parsed.ok()) return parsed.status().with_context(sources_.file);
    file = *std::move(parsed);
  }
  auto table = std::make_shared<Table>();
  std::map<std::pair<std::string, bool>, std::shared_ptr<const Tenant>> tenants;
  const auto add = [&](const KeyHash& hash, const std::string& id, bool is_operator) {
    std::shared_ptr<const Tenant>& tenant = tenants[{id, is_operator}];
    if (!tenant) {
      tenant = std::make_shared<const Tenant>(
          Tenant{.id = id, .limits = file.limits_of(id), .is_operator = is_operator});
    }
    table->keys.insert_or_assign(hash, tenant);
  };
  for (const KeyEntry& key : file.keys) add(key.hash, key.tenant, key.is_operator);
  for (const std::string& key : sources_.keys) add(hash_api_key(key), "default", false);
  for (const std::string& key : sources_.operator_keys) add(hash_api_key(key), "default", true);
  table->default_limits = file.default_limits;
  table->tenants.insert(file.tenants.begin(), file.tenants.end());
  const MutexLock lock(table_mutex_);
  table_ = std::move(table);
  return {};
}

std::shared_ptr<const Tenants::Table> Tenants::current() const {
  const MutexLock lock(table_mutex_);
  return table_;
}

bool Tenants::read_again() {
  const Status status = read();
  if (status.ok()) warn_of_writers();
  if (status.ok())
    log_->info("{} was read again: {} keys", sources_.file, current()->keys.size());
  else if (told_ != status.message())
    log_->error("the keys stay as they were: {}", status.message());
  told_ = status.message();
  return status.ok();
}

// Whoever writes to it makes keys of any tenant, and of operators.
void Tenants::warn_of_writers() const {
  struct stat facts{};
  if (sources_.file.empty() || ::stat(sources_.file.c_str(), &facts) != 0) return;
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) == 0) return;
  log_->warn("{}: others than its owner may write to it (mode {:04o}), and so make keys: chmod go-w {}",
             sources_.file, static_cast<unsigned>(facts.st_mode & 07777), sources_.file);
}

std::optional<TenantLimits> Tenants::limits_of(std::string_view tenant) const {
  if (!closed_ || sources_.file.empty()) return std::nullopt;
  const std::shared_ptr<const Table> table = current();
  const auto found = table->tenants.find(tenant);
  return found == table->tenants.end() ? table->default_limits : found->second;
}

std::variant<std::shared_ptr<const Tenant>, ApiError> Tenants::authenticate(
    const HttpRequest& request) const {
  if (!closed_) return default_;
  const std::string_view key = api_key_of(request);
  if (key.empty()) {
    return unauthorized("an API key is needed: send 'Authorization: Bearer KEY' or 'x-api-key: KEY'");
  }
  const std::shared_ptr<const Table> table = current();
  const auto found = table->keys.find(hash_api_key(key));
  if (found == table->keys.end())
    return unauthorized("expected an API key of this server; got one that it does not know");
  return found->second;
}

}  // namespace loci
