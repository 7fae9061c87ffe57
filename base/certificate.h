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
// Which side of TLS shows it. It is no use on the other side.
enum class CertificateUse { kServer, kClient };
// For a server that is reached by this DNS name, or a client that is known by it.
absl::StatusOr<KeyPair> IssueCertificate(const KeyPair& authority, CertificateUse use,
                                         const std::string& name, const Validity& validity);

// Before a certificate's end: people should see why it is not renewed. The chart does that when a third of 90
// days is left, and its alert comes this long before the end.
constexpr absl::Duration kCertificateSoon = absl::Hours(24 * 14);

// Of the first certificate in the text.
absl::StatusOr<Validity> ValidityOf(const std::string& certificate);
// Of the first certificate in the text; not its authority, and not when it is good.
absl::StatusOr<bool> IsForName(const std::string& certificate, const std::string& name);
// Whether the key is the certificate's.
absl::Status CheckKeyPair(const KeyPair& pair);
// That too, and whether the authority has signed it, for this use and DNS name. Its validity is not looked
// at.
absl::Status CheckIssued(const KeyPair& pair, const std::string& authority, CertificateUse use,
                         const std::string& name);

}  // namespace lunkeeper
