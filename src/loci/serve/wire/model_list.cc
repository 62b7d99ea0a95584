// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/model_list.h"

#include <utility>

namespace loci {

std::string model_list_json(Json models) {
  const Json first = models.front()["id"], last = models.back()["id"];
  return dump_json({{"object", "list"},
                    {"data", std::move(models)},
                    {"first_id", first},
                    {"last_id", last},
                    {"has_more", false}});
}

}  // namespace loci
