// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/peers/peer_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "loci/base/version.h"
#include "loci/serve/generation/generation_services.h"

namespace loci {
namespace asio = boost::asio;

namespace {

constexpr const char* kContentType = "application/octet-stream";
constexpr std::size_t kStateBytesMax = 512;
constexpr std::string_view kNotServing = "this server is loading or stopping", kNoPath = "no such path";
// Connections whose peer has not shown that it has the secret; the oldest gives way to the next. So strangers
// keep no member out who greets as fast as they come.
constexpr std::size_t kGreetingsMax = 64;
constexpr std::size_t kHelloBytesMax = 4 << 10;      // a member's has 500 bytes, later ones perhaps 2,000
constexpr Nanos kSourceLimit = 2 * kNanosPerSecond;  // that the source takes to answer a question
// Of all at once: some of the longest prompts beside questions and reads.
constexpr std::uint64_t kBodiesBytesMax = std::uint64_t{64} << 20;
constexpr unsigned kWorkers = 1;                     // tenants take turns
constexpr Nanos kAskingLimit = 5 * kNanosPerSecond;  // that a handshake or a request takes to arrive

HttpServer::Options http_options(const PeerServerOptions& options) {
  HttpServer::Options out{
      .host = options.host, .port = options.port, .tls = {}, .tls_context = options.tls, .limits = {}};
  out.unsent_bytes_max = 0;  // state is sent as fast as the network takes it
  out.limits.body_bytes_max = std::max(kPeerBodyBytesMax, kPrefillBodyBytesMax);
  out.limits.bodies_bytes_max = kBodiesBytesMax;
  out.limits.header_bytes_max = 8 << 10;
  out.limits.connections_max = options.connections_max;
  out.limits.greetings_max = kGreetingsMax;
  out.limits.hello_bytes_max = kHelloBytesMax;
  out.limits.header_timeout = kAskingLimit;
  out.limits.body_timeout = kAskingLimit;
  out.limits.body_stall_timeout = kAskingLimit;
  out.limits.idle_timeout = 60 * kNanosPerSecond;
  out.limits.write_timeout = kPeerPatience;
  return out;
}

}  // namespace

// What the source says of one question or read. Guarded by the server's mutex, but for what is the network
// thread's.
struct PeerServer::Exchanged {
  explicit Exchanged(asio::io_context& io) : woken(io), late(io) {}

  struct Piece {
    PeerSlices slices;                       // if the piece is gone, only its place counts
    std::uint8_t groups = 0;                 // bits: the one of which layers came, or all that are gone
    std::shared_ptr<const PeerBytes> given;  // null: it is gone; several pieces may share it
    std::span<const std::byte> bytes;        // the part of it that this piece sends
    std::uint64_t check[2]{};                // check_peer_piece() of these bytes
  };

  // Of a read; written before the source knows of it, and not after.
  std::shared_ptr<const std::vector<PeerWant>> wants;
  std::deque<Piece> pieces;
  std::optional<std::vector<std::uint8_t>> answer;
  PrefillNews news;  // of a prompt that is computed
  // The network thread's.
  asio::steady_timer woken;
  asio::steady_timer late;        // cuts the answer
  Exchange* answering = nullptr;  // while a read is answered
};

PeerServer::PeerServer(const PeerServerOptions& options, const Clock& clock,
                       std::shared_ptr<spdlog::logger> log)
    : options_(options),
      clock_(clock),
      metrics_(kVersion),
      http_(std::make_unique<HttpServer>(http_options(options), clock, metrics_, std::move(log))),
      worker_(std::make_unique<WorkerPool>(kWorkers)) {}

PeerServer::~PeerServer() { stop(); }

Status PeerServer::listen() {
  return http_->listen([this](Exchange& exchange) { return handle(exchange); });
}

void PeerServer::stop() {
  if (!http_) return;
  source_ = nullptr;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, exchanged] : open_)
      asio::post(http_->io(), [exchanged] { exchanged->woken.cancel(); });
  }
  http_->stop(0);
  worker_.reset();  // what waits there is not submitted
  std::map<PeerReadId, std::shared_ptr<Exchanged>> open;
  {
    const MutexLock lock(mutex_);
    open.swap(open_);
  }
  open.clear();
  http_.reset();  // and with it what was still going on
}

std::shared_ptr<PeerServer::Exchanged> PeerServer::begin(PeerReadId id) {
  auto made = std::make_shared<Exchanged>(http_->io());
  const MutexLock lock(mutex_);
  open_.emplace(id, made);
  return made;
}

void PeerServer::end(PeerReadId id) {
  std::shared_ptr<Exchanged> ended;  // let go behind the lock
  const MutexLock lock(mutex_);
  const auto at = open_.find(id);
  if (at == open_.end()) return;
  ended = std::move(at->second);
  open_.erase(at);
}

bool PeerServer::change(PeerReadId id, const std::function<void(Exchanged&)>& change) {
  const MutexLock lock(mutex_);
  const auto at = open_.find(id);
  if (at == open_.end()) return false;
  change(*at->second);
  asio::post(http_->io(), [exchanged = at->second] { exchanged->woken.cancel(); });
  return true;
}

void PeerServer::answered(PeerAnswer answer) {
  change(answer.id, [&](Exchanged& exchanged) { exchanged.answer = std::move(answer.groups); });
}

void PeerServer::give(const PeerSlices& slices, std::unique_ptr<const PeerBytes> given) {
  const PeerPlace& place = slices.place;
  std::shared_ptr<const std::vector<PeerWant>> wants;
  {
    const MutexLock lock(mutex_);
    const auto at = open_.find(place.read);
    if (at != open_.end()) wants = at->second->wants;
  }
  if (!wants) return;
  const std::shared_ptr<const PeerBytes> shared = std::move(given);
  const std::span<const std::byte> all = shared->bytes();
  const std::uint64_t most = peer_piece_bytes_max(slices.layer_bytes);
  std::vector<Exchanged::Piece> pieces;
  for (std::uint64_t at = 0; at < all.size(); at += most) {
    Exchanged::Piece& piece = pieces.emplace_back(
        Exchanged::Piece{.slices = slices,
                         .groups = static_cast<std::uint8_t>(1u << slices.group),
                         .given = shared,
                         .bytes = all.subspan(at, std::min<std::uint64_t>(most, all.size() - at))});
    piece.slices.first += static_cast<std::uint32_t>(at / slices.layer_bytes);
    piece.slices.is_last = slices.is_last && at + piece.bytes.size() == all.size();
    // Here, and not on the connection's thread, which has more to do.
    check_peer_piece(wants->at(place.index).key, static_cast<std::uint8_t>(slices.group),
                     static_cast<std::uint16_t>(piece.slices.first), piece.bytes, piece.check);
  }
  change(place.read, [&](Exchanged& exchanged) {
    for (Exchanged::Piece& piece : pieces) exchanged.pieces.push_back(std::move(piece));
  });
}

void PeerServer::gone(PeerGone gone) {
  change(gone.place.read, [&](Exchanged& exchanged) {
    exchanged.pieces.push_back({.slices = {.place = gone.place}, .groups = gone.groups, .given = {}});
  });
}

asio::awaitable<void> PeerServer::refuse(Exchange& exchange, int status, std::string_view why) {
  HttpResponse response{
      .status = status, .content_type = "text/plain", .body = std::string(why) + "\n", .headers = {}};
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> PeerServer::give_whole(Exchange& exchange, std::string body) {
  HttpResponse response{.status = 200, .content_type = kContentType, .body = std::move(body), .headers = {}};
  co_await exchange.respond(std::move(response));
}

asio::awaitable<void> PeerServer::handle(Exchange& exchange) {
  if (exchange.path() == kFeedPath || exchange.path() == kFeedPagePath)
    co_return co_await answer_front(exchange);
  const std::string state(exchange.request().header(kPeerStateHeader).substr(0, kStateBytesMax));
  if (state != options_.state) {
    const std::string why = fmt::format("expected the state '{}', found '{}'", options_.state, state);
    co_return co_await refuse(exchange, 409, why);
  }
  PeerSource* const source = source_;
  if (source == nullptr) co_return co_await refuse(exchange, 503, kNotServing);
  const bool asks = exchange.path() == kPeerAskPath, computes = exchange.path() == kPrefillPath;
  if (!asks && !computes && exchange.path() != kPeerReadPath)
    co_return co_await refuse(exchange, 404, kNoPath);
  const std::optional<ApiError> error = co_await exchange.read_body();
  if (error) co_return co_await refuse(exchange, error->http_status, error->message);
  if (asks) co_return co_await answer_question(exchange, *source);
  if (computes) co_return co_await answer_prefill(exchange, *source);
  co_await answer_read(exchange, *source);
}

// Changes are looked for every kFeedPeriod: so they come in batches, and nobody on whom requests wait has to
// wake this thread. Only a gap and a full batch are told at once.
asio::awaitable<FeedChanges> PeerServer::wait_for_changes(Exchange& exchange, FeedQuestion question) {
  asio::steady_timer pause(http_->io());
  exchange.watch([] {});
  FeedChanges changes = options_.feed->changes(question);
  const auto is_due = [&](Nanos waited) {
    return waited >= question.wait || changes.is_gap || changes.changes.size() >= kFeedEntriesMax ||
           (waited > 0 && !changes.changes.empty());
  };
  for (Nanos waited = 0; !is_due(waited); waited += kFeedPeriod) {
    if (exchange.gone() || source_ == nullptr) break;
    pause.expires_after(std::chrono::nanoseconds(kFeedPeriod));
    boost::system::error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    changes = options_.feed->changes(question);
  }
  co_await exchange.unwatch();
  co_return changes;
}

asio::awaitable<void> PeerServer::answer_front(Exchange& exchange) {
  if (options_.feed == nullptr) co_return co_await refuse(exchange, 404, kNoPath);
  if (source_ == nullptr) co_return co_await refuse(exchange, 503, kNotServing);
  if (const std::optional<ApiError> error = co_await exchange.read_body())
    co_return co_await refuse(exchange, error->http_status, error->message);
  const std::string& body = exchange.request().body;
  if (exchange.path() == kFeedPagePath) {
    const Result<FeedPageQuestion> question = read_feed_page_question(body);
    if (!question.ok()) co_return co_await refuse_field(exchange, question.status());
    std::string page = write_feed_page(options_.feed->page(*question));
    co_return co_await give_whole(exchange, std::move(page));
  }
  const Result<FeedQuestion> question = read_feed_question(body);
  if (!question.ok()) co_return co_await refuse_field(exchange, question.status());
  const FeedChanges changes = co_await wait_for_changes(exchange, *question);
  std::string reply = write_feed_changes(changes);
  co_await give_whole(exchange, std::move(reply));
}

asio::awaitable<void> PeerServer::refuse_field(Exchange& exchange, const Status& status) {
  const std::string why = status.field() + ": " + status.message();
  co_await refuse(exchange, 400, why);
}

asio::awaitable<void> PeerServer::answer_question(Exchange& exchange, PeerSource& source) {
  Result<std::vector<ChainKey>> keys = read_peer_question(exchange.request().body);
  if (!keys.ok()) co_return co_await refuse_field(exchange, keys.status());
  const PeerReadId id(++last_id_);
  const std::shared_ptr<Exchanged> exchanged = begin(id);
  const std::size_t count = keys->size();
  exchanged->woken.expires_after(std::chrono::nanoseconds(kSourceLimit));
  PeerQuestion question{.id = id, .keys = std::move(*keys)};
  source.ask(std::move(question));
  boost::system::error_code ignored;
  co_await exchanged->woken.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  end(id);
  const std::vector<std::uint8_t> groups = exchanged->answer.value_or(std::vector<std::uint8_t>(count, 0));
  std::string reply = write_peer_answer(groups);
  co_await give_whole(exchange, std::move(reply));
}

// What ends, and a member that leaves, wake it. (The calls to wake are ones of this thread, so none comes
// between a look and the wait behind it.)
asio::awaitable<bool> PeerServer::tell_news(Exchange& exchange, Exchanged& exchanged, Nanos pulse) {
  const auto look = [&] {
    const MutexLock lock(mutex_);
    return exchanged.news;
  };
  const Nanos until = clock_.now() + kPrefillLimitMax;
  while (clock_.now() < until && source_ != nullptr) {
    const PrefillNews news = look();
    if (!co_await exchange.stream(write_prefill_news(news)) || exchange.gone() || news.is_last())
      co_return news.is_last();
    if (look() != news) continue;
    exchanged.woken.expires_after(std::chrono::nanoseconds(pulse));
    boost::system::error_code ignored;
    co_await exchanged.woken.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  co_return false;
}

// A prompt that is submitted, or is going to be.
struct PeerServer::Submission {
  const std::shared_ptr<void> place;
  const TenantId tenant;
  PrefillWork work;
  const std::function<void(PrefillNews)> tell;
  std::atomic<bool> is_left = false;     // nobody waits for it any more
  std::optional<RequestId> submitted{};  // the network thread's
};

std::shared_ptr<void> PeerServer::take_prefill_place(const TenantId& tenant) {
  const auto known = prefills_of_.find(tenant);
  const std::size_t own = known == prefills_of_.end() ? 0 : known->second;
  if (own >= kPrefillsMax - prefills_) return nullptr;
  ++prefills_;
  ++prefills_of_[tenant];
  return {this, [tenant](PeerServer* server) {
            --server->prefills_;
            const auto of_tenant = server->prefills_of_.find(tenant);
            if (--of_tenant->second == 0) server->prefills_of_.erase(of_tenant);
          }};
}

asio::awaitable<void> PeerServer::submit(std::shared_ptr<Submission> submission, PeerSource& source) {
  const auto job = [&]() -> std::optional<RequestId> {
    if (submission->is_left) return std::nullopt;
    return source.prefill(std::move(submission->work), submission->tell);
  };
  bool failed = false;
  try {
    submission->submitted = co_await worker_->run(submission->tenant, job);
  } catch (const std::exception&) {
    failed = true;
  }
  if (failed) submission->tell({.says = PrefillNews::Says::kUnable});
  if (submission->is_left && submission->submitted && source_ != nullptr)
    source.leave_prefill(*submission->submitted);
}

asio::awaitable<void> PeerServer::answer_prefill(Exchange& exchange, PeerSource& source) {
  Result<PrefillWork> work = read_prefill(exchange.request().body);
  if (!work.ok()) co_return co_await refuse_field(exchange, work.status());
  std::shared_ptr<void> place = take_prefill_place(work->tenant);
  if (place == nullptr) co_return co_await refuse(exchange, 503, "too many prompts are computed");
  exchange.drop_body();
  const PeerReadId id(++last_id_);
  const std::shared_ptr<Exchanged> exchanged = begin(id);
  const Nanos pulse = work->pulse;
  const bool is_long = work->tokens.size() > kTokensSubmittedHere;
  const std::shared_ptr<Submission> submission(new Submission{
      .place = std::move(place),
      .tenant = work->tenant,
      .work = std::move(*work),
      .tell = [this, id](PrefillNews news) { change(id, [&](Exchanged& one) { one.news = news; }); }});
  if (is_long) {
    asio::co_spawn(http_->io(), submit(submission, source), asio::detached);
  } else {
    submission->submitted = source.prefill(std::move(submission->work), submission->tell);
  }
  exchange.watch([exchanged] { exchanged->woken.cancel(); });
  const bool is_there = co_await exchange.begin_stream(kContentType);
  const bool has_told = is_there && co_await tell_news(exchange, *exchanged, pulse);
  end(id);
  submission->is_left = !has_told;
  if (!has_told && submission->submitted && source_ != nullptr) source.leave_prefill(*submission->submitted);
  // Nothing broke; this server stops, or nobody can wait for so long.
  const std::string last = write_prefill_news({.says = PrefillNews::Says::kRefused});
  if (has_told || co_await exchange.stream(last)) co_await exchange.end_stream();
}

// What of a read has not been sent.
struct PeerServer::ReadLeft {
  std::vector<std::uint8_t> groups;  // by block
  std::size_t parts = 0;
};

asio::awaitable<bool> PeerServer::send_piece(Exchange& exchange, Exchanged& exchanged, ReadLeft& left) {
  std::optional<Exchanged::Piece> piece;
  {
    const MutexLock lock(mutex_);
    if (!exchanged.pieces.empty()) {
      piece = std::move(exchanged.pieces.front());
      exchanged.pieces.pop_front();
    }
  }
  if (!piece) {
    // What comes wakes it, and what does not come is said to be gone by the core. (The call to wake is one
    // of this thread, so it comes behind the wait.)
    exchanged.woken.expires_after(std::chrono::nanoseconds(kPeerPatience));
    boost::system::error_code ignored;
    co_await exchanged.woken.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    co_return source_ != nullptr;
  }
  const PeerSlices& slices = piece->slices;
  for (std::uint8_t group = 0; group < options_.group_count; ++group) {
    std::uint8_t& wanted = left.groups[slices.place.index];
    // (Of what is gone, layers may still come.)
    if ((piece->groups & wanted & (1u << group)) == 0) continue;
    const std::span<const std::byte> bytes = piece->bytes;
    const PeerPieceHead head{.index = slices.place.index,
                             .group = group,
                             .is_gone = !piece->given,
                             .first = static_cast<std::uint16_t>(slices.first),
                             .bytes = bytes.size(),
                             .check = {piece->check[0], piece->check[1]}};
    // The head goes with the bytes: alone it would wake the reader for nothing.
    const std::string top = write_peer_piece_head(head);
    const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!co_await exchange.stream(top, content)) co_return false;
    if (piece->given && !slices.is_last) continue;
    wanted &= static_cast<std::uint8_t>(~(1u << group));
    --left.parts;
  }
  co_return true;
}

asio::awaitable<void> PeerServer::answer_read(Exchange& exchange, PeerSource& source) {
  Result<PeerWants> wants = read_peer_wants(exchange.request().body, options_.group_count);
  if (!wants.ok()) co_return co_await refuse_field(exchange, wants.status());
  ReadLeft left;
  for (const PeerWant& want : wants->wants) {
    left.groups.push_back(want.groups);
    left.parts += static_cast<std::size_t>(std::popcount(want.groups));
  }
  const PeerReadId id(++last_id_);
  const std::shared_ptr<Exchanged> exchanged = begin(id);
  exchanged->wants = std::make_shared<const std::vector<PeerWant>>(wants->wants);
  PeerRead read{.id = id, .wants = std::move(wants->wants), .deadline = 0, .rounds = wants->rounds};
  source.read(std::move(read), wants->time_limit);
  exchanged->answering = &exchange;
  exchange.watch([exchanged] { exchanged->woken.cancel(); });
  exchanged->late.expires_after(std::chrono::nanoseconds(wants->time_limit + kPeerPatience));
  exchanged->late.async_wait([exchanged](const boost::system::error_code& error) {
    if (error || exchanged->answering == nullptr) return;
    exchanged->answering->cut_stream();
    exchanged->woken.cancel();
  });
  bool goes_on = co_await exchange.begin_stream(kContentType);
  while (goes_on && left.parts > 0 && !exchange.gone())  // which it is when it is late, too
    goes_on = co_await send_piece(exchange, *exchanged, left);
  exchanged->answering = nullptr;
  exchanged->late.cancel();
  end(id);
  // (Of what is gone the core may still have rounds.)
  if (source_ != nullptr) source.leave(id);
  if (left.parts == 0 && goes_on) {
    co_await exchange.end_stream();
  } else {
    exchange.cut_stream();
  }
}

}  // namespace loci
