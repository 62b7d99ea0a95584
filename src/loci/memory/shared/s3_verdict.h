// SPDX-License-Identifier: Apache-2.0
// What a reply says of an S3 store, as opposed to of an object.
#pragma once

#include <string>

#include "loci/base/status.h"
#include "loci/memory/shared/s3_address.h"
#include "loci/memory/shared/s3_client.h"

namespace loci {

// Ok: the store answered about the object, if only that it is not there. Errors: those of the reply, and
// kUnavailable with what the store said.
Status s3_health(const S3Reply& reply);

// The store is in good health and does not do what it was asked for: it is full, or the credentials may not
// write. Empty: it did not refuse. (Credentials that are not valid at all are a fault: they may be replaced.)
std::string s3_refusal(const S3Reply& reply);

// What a probe found: ok, kInvalidArgument for what an operator has to mend, else the reply's error.
Status s3_probe_verdict(const S3Reply& reply, const S3Address& address);

}  // namespace loci
