// gRPC's own certificate provider reads the files again every second. It says nothing useful about a file
// that it cannot use, and a server then refuses each handshake; so the files are first checked here with
// OpenSSL, for an error that names the file. This check is made once, at the start.
#include "base/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "base/openssl.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;

constexpr unsigned kReloadSeconds = 1;

// OpenSSL keeps its errors in a queue of the thread; one that stays there would be taken for that of a later
// call.
absl::Status UnusableFile(const std::string& path, const std::string& why) {
  ERR_clear_error();
  return absl::FailedPreconditionError(absl::StrCat("TLS file ", path, ": ", why));
}

// Reads the first object of a PEM file with one of OpenSSL's readers.
template <class Handle, class Reader>
absl::StatusOr<Handle> ReadPem(const std::string& path, const char* what, Reader reader) {
  // "e" is O_CLOEXEC: programs that this process starts must not inherit a private key.
  FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return UnusableFile(path, std::string(absl::ErrnoToStatus(errno, "open").message()));
  Handle object(reader(file, nullptr, NoPassword, nullptr));
  std::fclose(file);
  if (object == nullptr) return UnusableFile(path, absl::StrCat("want ", what, " in PEM form"));
  return object;
}

absl::Status CheckCa(const std::string& ca) {
  return ReadPem<Certificate>(ca, "a certificate", PEM_read_X509).status();
}

absl::Status CheckPair(const std::string& certificate, const std::string& key) {
  ASSIGN_OR_RETURN(const Certificate shown,
                   ReadPem<Certificate>(certificate, "a certificate", PEM_read_X509));
  ASSIGN_OR_RETURN(const PrivateKey secret,
                   ReadPem<PrivateKey>(key, "a private key without a password", PEM_read_PrivateKey));
  if (X509_check_private_key(shown.get(), secret.get()) == 1) return absl::OkStatus();
  return UnusableFile(key, absl::StrCat("it is not the key of ", certificate));
}

std::shared_ptr<FileWatcherCertificateProvider> WatchFiles(const TlsFiles& files) {
  return std::make_shared<FileWatcherCertificateProvider>(files.key, files.certificate, files.ca,
                                                          kReloadSeconds);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MutualTlsServer(const TlsFiles& files) {
  RETURN_IF_ERROR(CheckCa(files.ca));
  RETURN_IF_ERROR(CheckPair(files.certificate, files.key));
  grpc::experimental::TlsServerCredentialsOptions options(WatchFiles(files));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  // Without a certificate, or with one of another authority, the handshake fails: no service code sees such a
  // caller.
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MutualTlsClient(const TlsFiles& files) {
  RETURN_IF_ERROR(CheckCa(files.ca));
  RETURN_IF_ERROR(CheckPair(files.certificate, files.key));
  return UncheckedMutualTlsClient(files);
}

std::shared_ptr<grpc::ChannelCredentials> UncheckedMutualTlsClient(const TlsFiles& files) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(WatchFiles(files));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsServer(const std::string& certificate,
                                                                   const std::string& key) {
  RETURN_IF_ERROR(CheckPair(certificate, key));
  grpc::experimental::TlsServerCredentialsOptions options(
      WatchFiles({.certificate = certificate, .key = key, .ca = ""}));
  options.watch_identity_key_cert_pairs();
  // Callers prove themselves by a token in each call instead; see fencing/coordinator/authenticator.h.
  options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsClient(const std::string& ca) {
  RETURN_IF_ERROR(CheckCa(ca));
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(WatchFiles({.certificate = "", .key = "", .ca = ca}));
  options.watch_root_certs();
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<absl::Time> CertificateEnds(const std::string& path) {
  ASSIGN_OR_RETURN(const Certificate certificate, ReadPem<Certificate>(path, "a certificate", PEM_read_X509));
  // X.509 times are UTC.
  std::tm ends = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &ends) != 1)
    return UnusableFile(path, "it does not say until when it is good");
  return absl::FromTM(ends, absl::UTCTimeZone());
}

}  // namespace lunkeeper
