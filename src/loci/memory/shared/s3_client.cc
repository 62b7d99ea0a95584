// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_client.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/mutex.h"
#include "loci/base/version.h"
#include "loci/memory/shared/shared_account.h"

namespace loci {
namespace {

constexpr std::size_t kLanes = 4;
constexpr std::size_t kErrorBytesMax = std::size_t{16} << 10;
constexpr long kBufferBytes = 128L << 10;
constexpr long kConnectionsKept = 128;
constexpr Nanos kPauseMin = 50 * kNanosPerMilli, kPauseMax = 2 * kNanosPerSecond;
// Until a body of more than 1 MiB is sent to a store that does not say that it wants it.
constexpr long kContinueMs = 300;
constexpr const char* kEmptyHash =
    "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr const char* kUnsignedBody = "x-amz-content-sha256: UNSIGNED-PAYLOAD";

using Verb = S3Request::Verb;

long milliseconds(Nanos time) { return static_cast<long>(std::max<Nanos>(1, time / kNanosPerMilli)); }

// The store asks for patience, or has a fault of its own.
bool is_passing(std::uint32_t code) { return code == 429 || code >= 500; }

// After so many tries; between a half and the whole of a time that doubles, so that clients that failed
// together do not come back together.
Nanos pause_after(std::uint32_t tries) {
  const Nanos longest = std::min(kPauseMax, kPauseMin << std::min(tries - 1, 10u));
  const auto half = static_cast<std::uint32_t>(longest / kNanosPerMilli / 2);
  return (half + randombytes_uniform(half + 1)) * kNanosPerMilli;
}

Status status_of(CURLcode code, const char* text) {
  const std::string message = *text == '\0' ? curl_easy_strerror(code) : text;
  switch (code) {
    case CURLE_OK: return {};
    case CURLE_OPERATION_TIMEDOUT: return {StatusCode::kDeadlineExceeded, message};
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING: return data_loss(message);
    default: return {StatusCode::kUnavailable, message};
  }
}

}  // namespace

// A request that is under way, or waits until it is tried again.
struct S3Transfer {
  S3Request request;
  S3Reply reply;
  CURL* easy = nullptr;
  curl_slist* header = nullptr;
  std::array<char, CURL_ERROR_SIZE> text{};
  std::string error_body;
  std::size_t sent = 0;     // of the body, in this try
  std::uint64_t begun = 0;  // bytes that were taken before this try
  std::uint32_t tries = 0;
  Nanos again_at = 0;
  bool is_unwanted = false;  // the caller takes no more
  bool is_spoiled = false;   // the store sent what was not asked for

  // --- libcurl's callbacks ---
  static std::size_t take_line(char* data, std::size_t, std::size_t size, void* self) {
    static_cast<S3Transfer*>(self)->reply.head.take({data, size});
    return size;
  }
  static std::size_t take_body(char* data, std::size_t, std::size_t size, void* self) {
    return static_cast<S3Transfer*>(self)->take({data, size}) ? size : 0;
  }
  static std::size_t give_body(char* data, std::size_t, std::size_t room, void* self) {
    auto* const transfer = static_cast<S3Transfer*>(self);
    const std::vector<std::byte>& body = transfer->request.body;
    const std::size_t size = std::min(room, body.size() - transfer->sent);
    std::memcpy(data, body.data() + transfer->sent, size);
    transfer->sent += size;
    return size;
  }
  static int rewind_body(void* self, curl_off_t offset, int origin) {
    auto* const transfer = static_cast<S3Transfer*>(self);
    if (origin != SEEK_SET || offset < 0 ||
        static_cast<std::uint64_t>(offset) > transfer->request.body.size())
      return CURL_SEEKFUNC_FAIL;
    transfer->sent = static_cast<std::size_t>(offset);
    return CURL_SEEKFUNC_OK;
  }

  bool take(std::string_view data) {
    const S3Head& head = reply.head;
    if (request.verb != Verb::kRead || (head.code != 200 && head.code != 206)) {
      // An error's body, or what nobody asked for.
      error_body.append(data.substr(0, kErrorBytesMax - std::min(kErrorBytesMax, error_body.size())));
      is_spoiled = error_body.size() >= kErrorBytesMax;
      return !is_spoiled;
    }
    const std::uint64_t at = head.code == 206 ? head.first.value_or(UINT64_MAX) : 0;
    is_spoiled = at != request.first + begun || reply.taken + data.size() > request.bytes;
    if (is_spoiled) return false;
    reply.taken += data.size();
    is_unwanted = !request.take(head, std::as_bytes(std::span(data.data(), data.size())));
    return !is_unwanted;
  }
};

struct S3Client::State {
  State(S3Address at, S3Credentials who, const Limits& bounds, const char* thread_name, const Clock& time)
      : address(std::move(at)),
        credentials(std::move(who)),
        limits{bounds.questions, bounds.reads, bounds.writes, bounds.deletions},
        connect_limit(bounds.connect),
        clock(time),
        name(thread_name) {
    static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    LOCI_CHECK(ready, "libcurl cannot be initialised");
    LOCI_CHECK(sodium_init() >= 0, "libsodium failed to start");
    multi = curl_multi_init();
    LOCI_CHECK(multi != nullptr, "libcurl gives no handle");
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, kConnectionsKept);
    const std::string bundle = s3_process_environment("AWS_CA_BUNDLE");
    authorities = bundle.empty() ? s3_process_environment("SSL_CERT_FILE") : bundle;
  }
  ~State() {
    for (CURL* easy : idle) curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
  }

  void run();
  void start_waiting();
  void start(std::unique_ptr<S3Transfer> transfer);
  void prepare(S3Transfer& transfer);
  void prepare_header(S3Transfer& transfer) const;
  void finish(CURL* easy, CURLcode code);
  void end(std::unique_ptr<S3Transfer> transfer);
  void end_all();
  void run_due();
  void start_due();
  int patience() const;
  bool run_posted();

  S3Address address;
  S3Credentials credentials;
  const std::array<std::size_t, kLanes> limits;
  const Nanos connect_limit;
  const Clock& clock;
  const char* name;
  std::string authorities;  // a file of certificates; empty: the system's
  CURLM* multi = nullptr;
  std::vector<CURL*> idle;
  std::array<std::deque<S3Request>, kLanes> waiting;
  std::array<std::size_t, kLanes> under_way{};  // those that are to be tried again included
  std::map<CURL*, std::unique_ptr<S3Transfer>> transfers;
  std::vector<std::unique_ptr<S3Transfer>> paused;
  std::multimap<Nanos, std::function<void()>> timers;
  bool is_ending = false;

  Mutex mutex;
  std::deque<std::function<void()>> posted GUARDED_BY(mutex);
  bool is_stopping GUARDED_BY(mutex) = false;
  bool is_over GUARDED_BY(mutex) = false;
  std::thread thread;
};

S3Client::S3Client(S3Address address, S3Credentials credentials, const Limits& limits, const char* thread,
                   const Clock& clock)
    : state_(std::make_unique<State>(std::move(address), std::move(credentials), limits, thread, clock)) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

S3Client::~S3Client() { stop(); }

void S3Client::stop() {
  {
    const MutexLock lock(state_->mutex);
    state_->is_stopping = true;
  }
  curl_multi_wakeup(state_->multi);
  if (state_->thread.joinable()) state_->thread.join();
}

bool S3Client::post(std::function<void()> task) {
  {
    const MutexLock lock(state_->mutex);
    if (state_->is_over) return false;
    state_->posted.push_back(std::move(task));
  }
  curl_multi_wakeup(state_->multi);
  return true;
}

void S3Client::begin(S3Request request) {
  state_->waiting[static_cast<std::size_t>(request.lane)].push_back(std::move(request));
}

std::size_t S3Client::waiting(S3Request::Lane lane) const {
  return state_->waiting[static_cast<std::size_t>(lane)].size();
}

void S3Client::later(Nanos when, std::function<void()> task) {
  state_->timers.emplace(when, std::move(task));
}

void S3Client::set_credentials(S3Credentials credentials) { state_->credentials = std::move(credentials); }

void S3Client::State::run() {
  pthread_setname_np(pthread_self(), name);
  while (run_posted()) {
    run_due();
    start_due();
    start_waiting();
    int running = 0;
    curl_multi_perform(multi, &running);
    int left = 0;
    while (const CURLMsg* const message = curl_multi_info_read(multi, &left)) {
      if (message->msg == CURLMSG_DONE) finish(message->easy_handle, message->data.result);
    }
    start_waiting();
    curl_multi_poll(multi, nullptr, 0, patience(), nullptr);
  }
  end_all();
}

// False: the client ends.
bool S3Client::State::run_posted() {
  std::deque<std::function<void()>> tasks;
  bool goes_on = false;
  {
    const MutexLock lock(mutex);
    tasks.swap(posted);
    goes_on = !is_stopping;
  }
  for (const auto& task : tasks) task();
  return goes_on;
}

void S3Client::State::run_due() {
  while (!timers.empty() && timers.begin()->first <= clock.now()) {
    const std::function<void()> task = std::move(timers.begin()->second);
    timers.erase(timers.begin());
    task();
  }
}

void S3Client::State::start_due() {
  const Nanos now = clock.now();
  std::vector<std::unique_ptr<S3Transfer>> due;
  for (std::unique_ptr<S3Transfer>& one : paused) {
    if (one->again_at <= now) due.push_back(std::move(one));
  }
  std::erase(paused, nullptr);
  for (std::unique_ptr<S3Transfer>& one : due) start(std::move(one));
}

// Milliseconds until something is due; a posted task ends the wait.
int S3Client::State::patience() const {
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    if (!waiting[lane].empty() && under_way[lane] < limits[lane]) return 0;
  }
  Nanos wait = kNanosPerSecond;
  const Nanos now = clock.now();
  if (!timers.empty()) wait = std::min(wait, timers.begin()->first - now);
  for (const auto& one : paused) wait = std::min(wait, one->again_at - now);
  return static_cast<int>(std::max<Nanos>(0, (wait + kNanosPerMilli - 1) / kNanosPerMilli));
}

void S3Client::State::start_waiting() {
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    while (!waiting[lane].empty() && under_way[lane] < limits[lane]) {
      auto transfer = std::make_unique<S3Transfer>();
      transfer->request = std::move(waiting[lane].front());
      waiting[lane].pop_front();
      ++under_way[lane];
      if (clock.now() >= transfer->request.waits_until) {
        transfer->reply.status = SharedAccount::behind();
        end(std::move(transfer));
      } else {
        start(std::move(transfer));
      }
    }
  }
}

void S3Client::State::start(std::unique_ptr<S3Transfer> transfer) {
  if (idle.empty()) {
    transfer->easy = curl_easy_init();
    LOCI_CHECK(transfer->easy != nullptr, "libcurl gives no handle");
  } else {
    transfer->easy = idle.back();
    idle.pop_back();
  }
  ++transfer->tries;
  transfer->begun = transfer->reply.taken;
  transfer->reply.head = {};
  transfer->reply.was_sent = true;
  transfer->error_body.clear();
  transfer->sent = 0;
  prepare(*transfer);
  CURL* const easy = transfer->easy;
  transfers.emplace(easy, std::move(transfer));
  LOCI_CHECK(curl_multi_add_handle(multi, easy) == CURLM_OK, "libcurl takes a handle");
}

void S3Client::State::prepare_header(S3Transfer& transfer) const {
  const auto add = [&](const std::string& line) {
    curl_slist* const longer = curl_slist_append(transfer.header, line.c_str());
    LOCI_CHECK(longer != nullptr, "libcurl keeps a line");
    transfer.header = longer;
  };
  const S3Request& request = transfer.request;
  // Debian 12's libcurl signs this line, but does not write it by itself.
  add(request.verb == Verb::kWrite ? kUnsignedBody : kEmptyHash);
  if (!credentials.token.empty()) add("x-amz-security-token: " + credentials.token);
  if (request.verb != Verb::kRenew) return;
  add("x-amz-copy-source: " + address.path(request.name));
  add("x-amz-metadata-directive: REPLACE");
}

void S3Client::State::prepare(S3Transfer& transfer) {
  CURL* const easy = transfer.easy;
  const S3Request& request = transfer.request;
  const std::string place = address.url(request.name);
  const std::string signing = fmt::format("aws:amz:{}:s3", address.region);
  prepare_header(transfer);
  curl_easy_setopt(easy, CURLOPT_URL, place.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);  // a lookup that hangs is not waited for
  curl_easy_setopt(easy, CURLOPT_USERAGENT, (std::string("loci/") + kVersion).c_str());
  // Without it what follows would be sent as it is.
  LOCI_CHECK(curl_easy_setopt(easy, CURLOPT_AWS_SIGV4, signing.c_str()) == CURLE_OK, "libcurl signs");
  curl_easy_setopt(easy, CURLOPT_USERNAME, credentials.key_id.c_str());
  curl_easy_setopt(easy, CURLOPT_PASSWORD, credentials.secret.c_str());
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(connect_limit));
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, milliseconds(request.time_limit));
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(easy, CURLOPT_EXPECT_100_TIMEOUT_MS, kContinueMs);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer.header);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer.text.data());
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &S3Transfer::take_line);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &S3Transfer::take_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
  if (!authorities.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, authorities.c_str());
  if (request.verb == Verb::kHead) curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  if (request.verb == Verb::kDelete) curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "DELETE");
  if (request.verb == Verb::kRead) {
    const std::string range =
        fmt::format("{}-{}", request.first + transfer.begun, request.first + request.bytes - 1);
    curl_easy_setopt(easy, CURLOPT_RANGE, range.c_str());
  }
  if (request.verb != Verb::kWrite && request.verb != Verb::kRenew) return;
  curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
  curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  curl_easy_setopt(easy, CURLOPT_READFUNCTION, &S3Transfer::give_body);
  curl_easy_setopt(easy, CURLOPT_READDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, &S3Transfer::rewind_body);
  curl_easy_setopt(easy, CURLOPT_SEEKDATA, &transfer);
}

void S3Client::State::finish(CURL* easy, CURLcode code) {
  const auto found = transfers.find(easy);
  LOCI_CHECK(found != transfers.end(), "a transfer of this client's");
  std::unique_ptr<S3Transfer> transfer = std::move(found->second);
  transfers.erase(found);
  curl_multi_remove_handle(multi, easy);
  curl_easy_reset(easy);
  idle.push_back(easy);
  transfer->easy = nullptr;
  curl_slist_free_all(std::exchange(transfer->header, nullptr));
  S3Reply& reply = transfer->reply;
  reply.status = status_of(code, transfer->text.data());
  reply.error = parse_s3_error(transfer->error_body);
  if (transfer->is_unwanted) reply.status = {};
  if (transfer->is_spoiled) reply.status = data_loss("the store sent other bytes than it was asked for");
  if (reply.status.ok() && reply.head.code == 0) reply.status = data_loss("expected an answer of HTTP");
  // A store that asks for patience has done nothing.
  const bool asks_for_patience =
      reply.head.code == 503 && (reply.error.code == "SlowDown" || reply.error.code == "ServiceUnavailable");
  reply.is_open = reply.is_open || !reply.status.ok() || (reply.head.code >= 500 && !asks_for_patience);
  const bool is_broken = reply.status.code() == StatusCode::kUnavailable;
  const bool may_pass = is_broken || (reply.status.ok() && is_passing(reply.head.code));
  if (!may_pass || is_ending || transfer->tries >= transfer->request.tries) {
    end(std::move(transfer));
    return;
  }
  transfer->again_at = clock.now() + pause_after(transfer->tries);
  paused.push_back(std::move(transfer));
}

void S3Client::State::end(std::unique_ptr<S3Transfer> transfer) {
  --under_way[static_cast<std::size_t>(transfer->request.lane)];
  transfer->request.done(transfer->reply);
}

// What callbacks begin meanwhile ends as well.
void S3Client::State::end_all() {
  is_ending = true;
  timers.clear();
  const auto cancel = [this](std::unique_ptr<S3Transfer> transfer) {
    transfer->reply.status = {StatusCode::kCancelled, "the server ends"};
    transfer->reply.is_open = transfer->reply.was_sent;
    end(std::move(transfer));
  };
  bool is_idle = false;
  while (!is_idle) {
    is_idle = true;
    while (!transfers.empty()) {
      std::unique_ptr<S3Transfer> transfer = std::move(transfers.begin()->second);
      transfers.erase(transfers.begin());
      curl_multi_remove_handle(multi, transfer->easy);
      curl_easy_cleanup(std::exchange(transfer->easy, nullptr));
      curl_slist_free_all(std::exchange(transfer->header, nullptr));
      cancel(std::move(transfer));
      is_idle = false;
    }
    for (std::unique_ptr<S3Transfer>& one : std::exchange(paused, {})) cancel(std::move(one));
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      while (!waiting[lane].empty()) {
        auto transfer = std::make_unique<S3Transfer>();
        transfer->request = std::move(waiting[lane].front());
        waiting[lane].pop_front();
        ++under_way[lane];
        cancel(std::move(transfer));
        is_idle = false;
      }
    }
    run_posted();
    const MutexLock lock(mutex);
    is_over = is_idle && posted.empty();
    is_idle = is_over;
  }
}

}  // namespace loci
