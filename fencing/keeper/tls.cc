#include "fencing/keeper/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

using grpc::experimental::FileWatcherCertificateProvider;

constexpr unsigned kLookSeconds = 1;

using TlsContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

TlsContext NewContext() { return {SSL_CTX_new(TLS_method()), &SSL_CTX_free}; }

absl::Status Wrong(const std::string& path, const char* want) {
  const char* reason = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  return absl::FailedPreconditionError(
      absl::StrCat("TLS file ", path, ": ", reason == nullptr ? "unusable" : reason, "; want ", want));
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> KeeperServerTls(const std::string& certificate,
                                                                         const std::string& key) {
  const TlsContext context = NewContext();
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate.c_str()) != 1)
    return Wrong(certificate, "a certificate in PEM form");
  if (SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) != 1)
    return Wrong(key, "the certificate's private key in PEM form");
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<FileWatcherCertificateProvider>(key, certificate, kLookSeconds));
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> KeeperClientTls(const std::string& ca) {
  if (SSL_CTX_load_verify_file(NewContext().get(), ca.c_str()) != 1)
    return Wrong(ca, "the certificate of who signs the controllers', in PEM form");
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<FileWatcherCertificateProvider>(ca, kLookSeconds));
  options.watch_root_certs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace lunkeeper
