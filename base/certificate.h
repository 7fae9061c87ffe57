#pragma once
// The certificates of a small authority of our own: made, signed and checked in memory, as PEM text. Keys are
// on the curve P-256. Plain functions, thread-safe; nothing is stored. Failure: FAILED_PRECONDITION for text
// that is no certificate or key, or not the one it has to be; INTERNAL for what OpenSSL could not do.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lunkeeper {

struct KeyPair {
  std::string certificate;  // PEM
  std::string key;          // PEM, without a password
  bool empty() const { return certificate.empty() && key.empty(); }
  friend bool operator==(const KeyPair&, const KeyPair&) = default;
};

struct Validity {
  absl::Time from, until;  // whole seconds count
};

// A certificate that signs itself and may sign others, but no further authority.
absl::StatusOr<KeyPair> MakeAuthority(const std::string& name, const Validity& validity);
// For a TLS server that is reached by this DNS name.
absl::StatusOr<KeyPair> IssueServerCertificate(const KeyPair& authority, const std::string& host,
                                               const Validity& validity);

// Of the first certificate in the text.
absl::StatusOr<Validity> ValidityOf(const std::string& certificate);
// Whether the key is the certificate's.
absl::Status CheckKeyPair(const KeyPair& pair);
// That too, and whether the authority has signed it, for this DNS name. Its validity is not looked at.
absl::Status CheckServerCertificate(const KeyPair& server, const std::string& authority,
                                    const std::string& host);

}  // namespace lunkeeper
