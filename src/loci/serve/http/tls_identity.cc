// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/tls_identity.h"

#include <utility>

namespace loci {

Status TlsIdentity::open(const TlsFiles& files, std::shared_ptr<spdlog::logger> log) {
  if (!files.given()) return {};
  files_ = files;
  log_ = std::move(log);
  watch_.look({files_.certificate, files_.key});
  LOCI_RETURN_IF_ERROR(read());
  watch_.start([this] { return read_again(); });
  return {};
}

TlsContext TlsIdentity::context() const {
  const MutexLock lock(mutex_);
  return context_;
}

Status TlsIdentity::read() {
  LOCI_ASSIGN_OR_RETURN(TlsContext context, make_server_tls(files_));
  const MutexLock lock(mutex_);
  context_ = std::move(context);
  return {};
}

bool TlsIdentity::read_again() {
  const Status status = read();
  if (status.ok())
    log_->info("the certificate {} was read again", files_.certificate);
  else if (told_ != status.message())
    log_->warn("the certificate stays as it was: {}: {}", status.field(), status.message());
  told_ = status.message();
  return status.ok();
}

}  // namespace loci
