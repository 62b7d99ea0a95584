// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/tls_identity.h"

#include <utility>

#include "loci/serve/files/text_file.h"

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

namespace {

// Both must be ordinary files, as read_text_file_again() says: OpenSSL would wait for a pipe.
Status check_readable(const TlsFiles& files) {
  for (const auto& [option, path] : {std::pair("tls_cert", files.certificate), {"tls_key", files.key}}) {
    const Status status = read_text_file_again(path).status();
    if (!status.ok()) return {status.code(), status.message(), option};
  }
  return {};
}

}  // namespace

bool TlsIdentity::read_again() {
  Status status = check_readable(files_);
  if (status.ok()) status = read();
  if (status.ok())
    log_->info("the certificate {} was read again", files_.certificate);
  else if (told_ != status.message())
    log_->warn("the certificate stays as it was: {}: {}", status.field(), status.message());
  told_ = status.message();
  return status.ok();
}

}  // namespace loci
