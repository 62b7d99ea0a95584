// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/s3_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <utility>

#include "loci/memory/shared/s3_client.h"
#include "loci/memory/shared/s3_credentials_reader.h"
#include "loci/memory/shared/s3_deletions.h"
#include "loci/memory/shared/s3_questions.h"
#include "loci/memory/shared/s3_read.h"
#include "loci/memory/shared/s3_store_state.h"
#include "loci/memory/shared/s3_verdict.h"
#include "loci/memory/shared/s3_writes.h"
#include "loci/memory/shared/shared_account.h"
#include "loci/memory/shared/shared_reads.h"

namespace loci {
namespace {

// No value has this name.
constexpr const char* kProbeName = "loci/probe";

class S3Store final : public SharedStore {
 public:
  S3Store(S3StoreOptions options, S3Credentials credentials, const Clock& clock)
      : options_(std::move(options)),
        clock_(clock),
        format_(options_.keys, options_.groups),
        account_(options_.address.shown(), "until a rule of the bucket expires it", options_.warn, clock),
        state_{.format = format_,
               .account = account_,
               .seconds_to_live = (options_.time_to_live + kNanosPerSecond - 1) / kNanosPerSecond,
               .request_limit = options_.transfer_limit,
               .rate_min = options_.rate_min,
               .damaged = [this](const ChainKey& key) { deletions_.take(key); },
               .aged =
                   [this](const ChainKey& key, std::uint32_t group) {
                     client_.post([this, key, group] {
                       if (!deletions_.has(key)) writes_.renew(key, group);
                     });
                   }},
        credentials_(options_.credentials),
        client_(options_.address, credentials, limits(), "loci-shared-s3", clock),
        questions_(state_, client_, options_.questions_at_once, options_.connect_limit, clock),
        open_writes_(options_.late_write_limit, clock),
        writes_(state_, open_writes_, client_),
        deletions_(state_, open_writes_, client_, clock) {
    for (std::uint32_t i = 0; i < std::max(1u, options_.readers); ++i)
      readers_.push_back(
          std::make_unique<S3Client>(options_.address, credentials, limits(), "loci-shared-get", clock));
  }

  // Once, before anything else.
  Status begin() {
    std::promise<Status> found;
    client_.post([&] { probe([&](Status status) { found.set_value(std::move(status)); }); });
    const Status status = found.get_future().get();
    if (status.code() == StatusCode::kInvalidArgument) return status;
    if (!status.ok()) account_.begin_down(status);
    client_.post([this] { watch(); });
    return {};
  }

  ~S3Store() override {
    for (const auto& reader : readers_) reader->stop();
    client_.post([this] { deletions_.drop_all(); });
    client_.stop();
  }

  void ask(std::vector<ChainKey> keys, Nanos time_limit, Answer answer) override {
    account_.count(&SharedStoreStats::asks_total, 1);
    auto question = std::make_shared<S3Question>(S3Question{
        .keys = std::move(keys), .deadline = clock_.now() + time_limit, .answer = std::move(answer)});
    client_.post([this, question] { questions_.begin(std::move(*question)); });
  }

  void read(std::vector<BlockRead> items, std::uint32_t, std::shared_ptr<BlockReadSink> sink) override {
    const Nanos waits_until = clock_.now() + options_.transfer_limit;
    for (std::vector<S3Read::Item>& own : divide_reads<S3Read::Item>(items, readers_.size())) {
      S3Client& reader = *readers_[next_reader_.fetch_add(1, std::memory_order_relaxed) % readers_.size()];
      const auto job = std::make_shared<S3Read>(std::move(own), sink, waits_until, state_, reader);
      reader.post([this, job] {
        if (account_.is_up()) return job->begin();
        // Refused at once: nobody waits for a deadline of which it is known how it ends.
        job->refuse(SharedAccount::not_asked());
      });
    }
  }

  void write(std::uint32_t group, SlotId, BlockEntry entry, std::vector<std::byte> bytes,
             std::function<void(Status)> done) override {
    auto job = std::make_shared<S3Write>(S3Write{.key = entry.key,
                                                 .group = group,
                                                 .bytes = std::move(bytes),
                                                 .done = std::move(done),
                                                 .waits_until = clock_.now() + options_.transfer_limit});
    client_.post([this, job] { writes_.begin(std::move(*job)); });
  }

  void change(const RecordChange& change) override {
    if (change.kind == RecordChange::Kind::kForget) deletions_.take(change.entry.key);
  }

  SharedStoreStats stats() const override { return account_.stats(); }

 private:
  S3Client::Limits limits() const {
    return {.questions = options_.questions_at_once,
            .reads = options_.reads_at_once,
            .connect = options_.connect_limit};
  }

  // What follows is on the client's thread.

  void probe(std::function<void(Status)> found) {
    client_.begin({.verb = S3Request::Verb::kProbe,
                   .lane = S3Request::Lane::kQuestions,
                   .name = kProbeName,
                   .waits_until = kNever,
                   .time_limit = options_.connect_limit,
                   .done = [this, found = std::move(found)](const S3Reply& reply) {
                     found(s3_probe_verdict(reply, options_.address));
                   }});
  }

  // A store that is left alone is tried every now and then, with the credentials that there are by then.
  void watch() {
    client_.later(clock_.now() + kWatchPause, [this] { watch(); });
    // (An answer that was under way may have shown that it is up.)
    if (account_.is_up()) deletions_.go_on();
    if (is_probing_ || (account_.is_up() && !read_until_)) return;
    if (read_until_) return try_again();
    if (clock_.now() < account_.probe_at()) return;
    read_until_ = clock_.now() + options_.connect_limit;
    credentials_.begin();
  }

  // Once the credentials are read, or with the old ones if that takes too long.
  void try_again() {
    const std::optional<Result<S3Credentials>> found = credentials_.take();
    if (!found && clock_.now() < *read_until_) return;
    read_until_.reset();
    if (found && found->ok()) {
      client_.set_credentials(**found);
      for (const auto& reader : readers_)
        reader->post([client = reader.get(), now = **found] { client->set_credentials(now); });
    }
    is_probing_ = true;
    const Status unread = found && !found->ok() ? found->status() : Status();
    probe([this, unread](const Status& status) {
      is_probing_ = false;
      account_.note_probe(status.ok() || unread.ok() ? status : unread);
      if (status.ok()) deletions_.go_on();
    });
  }

  static constexpr Nanos kWatchPause = kNanosPerSecond / 4;

  const S3StoreOptions options_;
  const Clock& clock_;
  const SharedFormat format_;
  SharedAccount account_;
  const S3StoreState state_;
  S3CredentialsReader credentials_;
  std::optional<Nanos> read_until_;  // present: credentials are being read
  bool is_probing_ = false;
  // It calls those below on its thread, until the destructor stops it.
  S3Client client_;
  S3Questions questions_;
  S3OpenWrites open_writes_;
  S3Writes writes_;
  S3Deletions deletions_;
  std::vector<std::unique_ptr<S3Client>> readers_;
  std::atomic<std::size_t> next_reader_{0};
};

}  // namespace

Result<std::unique_ptr<SharedStore>> open_s3_store(S3StoreOptions options, const Clock& clock) {
  LOCI_ASSIGN_OR_RETURN(const S3Credentials credentials, options.credentials());
  auto store = std::make_unique<S3Store>(std::move(options), credentials, clock);
  LOCI_RETURN_IF_ERROR(store->begin());
  return std::unique_ptr<SharedStore>(std::move(store));
}

}  // namespace loci
