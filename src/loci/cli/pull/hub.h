// SPDX-License-Identifier: Apache-2.0
// A registry of Hugging Face's layout: what its API answers, and what its refusals mean for people.
#pragma once

#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/cli/pull/http_client.h"
#include "loci/cli/pull/repo_files.h"
#include "loci/cli/pull/repo_reference.h"

namespace loci {

// HF_ENDPOINT (https://huggingface.co by default) and HF_TOKEN.
HubAccess hub_access_of_environment();

// Everything in the repo, page by page; a page that fails is asked for again.
// Errors: kNotFound, kInvalidArgument (no access), kDataLoss, kUnavailable.
Result<std::vector<RepoFile>> list_repo(HttpClient& client, const HubAccess& access,
                                        const RepoReference& repo);

std::string file_url(const HubAccess& access, const RepoReference& repo, const std::string& path);

// What an answer that is no success means, about the file at `path`; empty: about the repository's list of
// files. kUnavailable: it is worth trying again.
Status refusal(const HttpReply& reply, const HubAccess& access, const RepoReference& repo,
               const std::string& path);

// Failures in a row, without a byte gained.
inline constexpr int kAttempts = 5;
// How long to wait before the next try: a quarter of a second, doubled with each failure, or as long as the
// server asks; at most a minute.
void wait_before_retry(int failures, const std::string& retry_after);

}  // namespace loci
