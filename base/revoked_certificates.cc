// A thread looks at the file twice a second and reads it when it has changed; a reader of the list takes the
// last good one. A file that cannot be read, or has a wrong line, changes nothing: what was revoked stays
// revoked.
#include "base/revoked_certificates.h"

#include <openssl/pem.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/openssl.h"
#include "base/periodic.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(500);
constexpr size_t kFingerprintDigits = 64;

using Ids = std::set<std::string>;  // in lower case, without colons; serials without leading zeros

std::string WithoutZeros(const std::string& digits) {
  const size_t first = digits.find_first_not_of('0');
  return first == std::string::npos ? "0" : digits.substr(first);
}

// A serial number may be printed with leading zeros. A fingerprint is a text of fixed length, zeros included.
std::string Normalize(absl::string_view text) {
  const std::string digits = absl::AsciiStrToLower(absl::StrReplaceAll(text, {{":", ""}}));
  return digits.size() == kFingerprintDigits ? digits : WithoutZeros(digits);
}

absl::StatusOr<Ids> ReadIds(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return absl::FailedPreconditionError(absl::StrCat("list of revoked certificates ", path,
                                                      ": it cannot be read: create it, empty if need be"));
  Ids ids;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const absl::string_view text =
        absl::StripAsciiWhitespace(absl::string_view(line).substr(0, line.find('#')));
    if (text.empty()) continue;
    if (text.find_first_not_of("0123456789abcdefABCDEF:") != absl::string_view::npos)
      return absl::FailedPreconditionError(
          absl::StrCat("list of revoked certificates ", path, ", line ", number,
                       ": want a serial number or a SHA-256 fingerprint in hexadecimal"));
    ids.insert(Normalize(text));
  }
  return ids;
}

// Serial and fingerprint. Empty: it is no certificate.
Ids IdsOf(const std::string& pem) {
  const MemoryBio text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const Certificate certificate(PEM_read_bio_X509(text.get(), nullptr, NoPassword, nullptr));
  if (certificate == nullptr) return {};
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  X509_digest(certificate.get(), EVP_sha256(), digest, &length);
  const BigNumber serial(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate.get()), nullptr));
  char* const digits = serial == nullptr ? nullptr : BN_bn2hex(serial.get());
  if (digits == nullptr) return {};
  Ids ids = {Normalize(digits),
             absl::BytesToHexString({reinterpret_cast<const char*>(digest), size_t{length}})};
  OPENSSL_free(digits);
  return ids;
}

class RevokedFile final : public RevokedCertificates {
 public:
  RevokedFile(std::string path, Ids ids)
      : path_(std::move(path)), ids_(std::move(ids)), look_(kLookEvery, [this] { LookAtFile(); }) {}

  absl::Status CheckCertificate(const std::string& pem) override {
    const Ids own = IdsOf(pem);
    if (own.empty()) return absl::PermissionDeniedError("the client's certificate cannot be read");
    const absl::MutexLock lock(&mutex_);
    for (const std::string& id : own)
      if (ids_.contains(id))
        return absl::PermissionDeniedError(
            absl::StrCat("the client's certificate is revoked (", id, "): give it a new one"));
    return absl::OkStatus();
  }

 private:
  using Version = std::tuple<ino_t, off_t, time_t, long>;

  // What was read just before may be half of the file; it is read again when its time of change moves on.
  void LookAtFile() {
    struct stat info {};
    Version version;
    if (::stat(path_.c_str(), &info) == 0)
      version = {info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
    // A file that is gone has no version. That is a change like any other, and reading it says what is wrong.
    if (version == std::exchange(seen_, version)) return;
    absl::StatusOr<Ids> ids = ReadIds(path_);
    if (!ids.ok()) return LogError("tls", std::string(ids.status().message()));
    const absl::MutexLock lock(&mutex_);
    ids_ = *std::move(ids);
    LogInfo("tls", "the list of revoked certificates was read",
            {{"file", path_}, {"certificates", absl::StrCat(ids_.size())}});
  }

  const std::string path_;
  absl::Mutex mutex_;
  Ids ids_ ABSL_GUARDED_BY(mutex_);
  Version seen_;  // the thread's
  Periodic look_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RevokedCertificates>> RevokedCertificates::Open(const std::string& path) {
  ASSIGN_OR_RETURN(Ids ids, ReadIds(path));
  return std::make_unique<RevokedFile>(path, std::move(ids));
}

}  // namespace lunkeeper
