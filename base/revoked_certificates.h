#pragma once
// A list of certificates that are refused although their authority has signed them: stolen ones,
// or belong to what is no more. One line each: the serial number, or the SHA-256 fingerprint, in hexadecimal
// as `openssl x509 -serial -fingerprint -sha256` prints them, with or without colons; `#` begins a comment.
//
// The file is read again within a second of a change. One that cannot be read then, or has a wrong line, is
// logged, and the list stays as it was. Thread-safe. Failure: FAILED_PRECONDITION at the start for such a
// file.

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace lunkeeper {

class RevokedCertificates {
 public:
  static absl::StatusOr<std::unique_ptr<RevokedCertificates>> Open(const std::string& path);
  virtual ~RevokedCertificates() = default;

  // PERMISSION_DENIED: this certificate (PEM) is on the list, or is none.
  virtual absl::Status CheckCertificate(const std::string& pem) = 0;
};

}  // namespace lunkeeper
