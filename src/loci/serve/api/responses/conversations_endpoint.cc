// SPDX-License-Identifier: Apache-2.0
// /v1/conversations: conversations and their items.
#include <fmt/format.h>

#include <functional>

#include "loci/serve/api/responses/endpoints.h"
#include "loci/serve/api/responses/hold_turn.h"
#include "loci/serve/api/responses/response_turn.h"
#include "loci/serve/api/responses/store_answer.h"
#include "loci/serve/api/responses/stored_objects.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

// Reads a request; on a worker.
using ReadRequest = std::function<Result<StoreJob>(const Call&)>;

asio::awaitable<void> answer(ApiServices& services, Call& call, const ReadRequest& read) {
  if (services.store == nullptr) {
    co_await call.fail(no_store_error());
    co_return;
  }
  const auto read_job = [&] { return read(call); };
  Result<StoreJob> job = co_await services.workers.run(call.tenant->id, read_job);
  if (!job.ok()) {
    ApiError refused = api_error(job.status());
    co_await call.fail(std::move(refused));
    co_return;
  }
  StoreJob read_well = std::move(*job);
  co_await answer_from_store(services, call, std::move(read_well));
}

Result<StoreJob> read_create(const Call& call) {
  LOCI_ASSIGN_OR_RETURN(NewConversation conversation, parse_conversation(call.exchange.request().body));
  return StoreJob([conversation = std::move(conversation)](ConversationStore& store,
                                                           const std::string& tenant, const ReadRoom&) {
    return create_conversation(store, tenant, conversation);
  });
}

Result<StoreJob> read_list(const Call& call) {
  const Query query(call.exchange.request().target);
  if (query.value("order").value_or("desc") != "desc")
    return invalid_argument("expected desc: the last active first", "order");
  LOCI_ASSIGN_OR_RETURN(const ItemPage page, read_page(query));
  return StoreJob([page](ConversationStore& store, const std::string& tenant, const ReadRoom&) {
    return list_conversations(store, tenant, page);
  });
}

Result<StoreJob> read_show(const Call& call) {
  return StoreJob(
      [id = call.parameters[0]](ConversationStore& store, const std::string& tenant, const ReadRoom&) {
        return show_conversation(store, tenant, id);
      });
}

Result<StoreJob> read_update(const Call& call) {
  LOCI_ASSIGN_OR_RETURN(Json metadata, parse_metadata_update(call.exchange.request().body));
  return StoreJob([id = call.parameters[0], metadata = std::move(metadata)](
                      ConversationStore& store, const std::string& tenant, const ReadRoom&) {
    return update_conversation(store, tenant, id, metadata);
  });
}

Result<StoreJob> read_add_items(const Call& call) {
  LOCI_ASSIGN_OR_RETURN(std::vector<Item> items, parse_added_items(call.exchange.request().body));
  return StoreJob([id = call.parameters[0], items = std::move(items)](
                      ConversationStore& store, const std::string& tenant, const ReadRoom&) {
    return add_items(store, tenant, id, items);
  });
}

Result<StoreJob> read_list_items(const Call& call) {
  LOCI_ASSIGN_OR_RETURN(ItemPage page, read_page(Query(call.exchange.request().target)));
  return StoreJob([id = call.parameters[0], page](ConversationStore& store, const std::string& tenant,
                                                  const ReadRoom& room) mutable {
    page.room = room;
    return list_items(store, tenant, id, page);
  });
}

Result<StoreJob> read_show_item(const Call& call) {
  return StoreJob([id = call.parameters[0], item = call.parameters[1]](
                      ConversationStore& store, const std::string& tenant, const ReadRoom& room) {
    return show_item(store, tenant, id, item, room);
  });
}

Result<StoreJob> read_delete_item(const Call& call) {
  return StoreJob([id = call.parameters[0], item = call.parameters[1]](
                      ConversationStore& store, const std::string& tenant, const ReadRoom&) {
    return delete_item(store, tenant, id, item);
  });
}

// The tenant's tokens and state of what was said, as far as the model that is served has made them.
// O(tokens).
void forget_said(ApiServices& services, const std::string& tenant, const std::string& salt,
                 StoredTokens&& said) {
  const ServedModel& served = *services.served.load();
  if (said.tokenizer != tokenizer_name(served)) return;
  services.history.forget(tenant, said.tokens);
  if (!salt.empty()) served.engine->forget({.tenant = tenant, .salt = salt, .tokens = said.tokens});
  served.engine->forget({.tenant = tenant, .salt = {}, .tokens = std::move(said.tokens)});
}

asio::awaitable<void> remove(ApiServices& services, Call& call) {
  if (services.store == nullptr) {
    co_await call.fail(no_store_error());
    co_return;
  }
  // Else its state would stay.
  if (services.served.load() == nullptr) {
    co_await call.fail(*services.not_ready());
    co_return;
  }
  const std::string& tenant = call.tenant->id;
  const std::string& id = call.parameters[0];
  const std::string salt(Query(call.exchange.request().target).value("cache_salt").value_or(""));
  if (salt.size() > kCacheSaltBytesMax) {
    co_await call.fail(api_error(
        invalid_argument(fmt::format("expected at most {} bytes", kCacheSaltBytesMax), "cache_salt")));
    co_return;
  }
  const std::variant<HeldTurn, ApiError> held =
      co_await hold_turn(services, call.exchange, tenant, id, "",
                         "a response of this conversation is still being made; delete the conversation when "
                         "that response has ended");
  if (const auto* error = std::get_if<ApiError>(&held)) {
    co_await call.fail(*error);
    co_return;
  }
  SaidToForget said([&](StoredTokens&& one) { forget_said(services, tenant, salt, std::move(one)); });
  StoreJob job = [&](ConversationStore& store, const std::string& owner, const ReadRoom&) {
    return delete_conversation(store, owner, id, said);
  };
  WorkerJob forget = [&] { said.forget(); };
  co_await answer_from_store(services, call, std::move(job), std::move(forget));
}

}  // namespace

void add_conversations_endpoints(Router& router, ApiServices& services) {
  const auto add = [&](http::verb method, const char* pattern, Result<StoreJob> (*read)(const Call&)) {
    // The route owns what the coroutine refers to.
    const auto shared = std::make_shared<const ReadRequest>(read);
    const Metering metering = method == http::verb::get ? Metering::kRead : Metering::kRequest;
    router.add({.method = method,
                .pattern = pattern,
                .metering = metering,
                .handler = [&services, shared](Call& call) { return answer(services, call, *shared); }});
  };
  add(http::verb::post, "/v1/conversations", read_create);
  add(http::verb::get, "/v1/conversations", read_list);
  add(http::verb::get, "/v1/conversations/{id}", read_show);
  add(http::verb::post, "/v1/conversations/{id}", read_update);
  add(http::verb::post, "/v1/conversations/{id}/items", read_add_items);
  add(http::verb::get, "/v1/conversations/{id}/items", read_list_items);
  add(http::verb::get, "/v1/conversations/{id}/items/{item}", read_show_item);
  add(http::verb::delete_, "/v1/conversations/{id}/items/{item}", read_delete_item);
  router.add({.method = http::verb::delete_,
              .pattern = "/v1/conversations/{id}",
              .metering = Metering::kRequest,
              .handler = [&services](Call& call) { return remove(services, call); }});
}

}  // namespace loci
