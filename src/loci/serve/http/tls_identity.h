// SPDX-License-Identifier: Apache-2.0
// The certificate and key that a server shows now: read at its start, and again within a second when one of
// the files changes, so that a renewed certificate needs no restart. Connections keep the one that they began
// with.
#pragma once

#include <spdlog/logger.h>

#include <memory>

#include "loci/base/mutex.h"
#include "loci/base/status.h"
#include "loci/serve/files/file_watch.h"
#include "loci/serve/http/tls.h"

namespace loci {

// open(): once, before context(). context(): thread-safe.
class TlsIdentity {
 public:
  TlsIdentity() = default;  // none: plain connections

  // Files that do not go together later (one of two is new, say) change nothing, and the log says so.
  // Errors: those of make_server_tls().
  Status open(const TlsFiles& files, std::shared_ptr<spdlog::logger> log);
  // Null where connections are plain.
  TlsContext context() const;

 private:
  Status read();
  bool read_again();

  TlsFiles files_;
  std::shared_ptr<spdlog::logger> log_;
  mutable Mutex mutex_;
  TlsContext context_ GUARDED_BY(mutex_);
  std::string told_;  // what was wrong when it was last said; the watch's
  FileWatch watch_;   // last: its thread reads what is above
};

}  // namespace loci
