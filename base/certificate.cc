// A certificate is begun (version, serial number, names, times, key), gets its extensions, and is signed
// last, on the caller's thread. Key identifiers are set on both sides, for during a renewal two authorities
// have one name.
#include "base/certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <ctime>

#include "absl/strings/str_cat.h"
#include "base/openssl.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr long kVersion3 = 2;  // X.509 counts from 0
// Random, so that no two authorities of one name issue the same serial; RFC 5280, section 4.1.2.2, allows 20
// octets, of a positive number.
constexpr int kSerialBits = 127;

absl::Status CannotMake(const char* what) {
  const std::string why = ERR_reason_error_string(ERR_peek_last_error()) != nullptr
                              ? ERR_reason_error_string(ERR_peek_last_error())
                              : "no reason given";
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("make a certificate: ", what, ": ", why));
}

absl::Status NotUsable(const std::string& why) {
  ERR_clear_error();
  return absl::FailedPreconditionError(why);
}

// Reads the first object of a PEM text with one of OpenSSL's readers.
template <class Handle, class Reader>
absl::StatusOr<Handle> ParsePem(const std::string& text, const char* what, Reader reader) {
  const MemoryBio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  Handle object(bio == nullptr ? nullptr : reader(bio.get(), nullptr, NoPassword, nullptr));
  if (object == nullptr) return NotUsable(absl::StrCat("want ", what, " in PEM form"));
  return object;
}

absl::StatusOr<Certificate> ParseCertificate(const std::string& text) {
  return ParsePem<Certificate>(text, "a certificate", PEM_read_bio_X509);
}

absl::StatusOr<PrivateKey> ParseKey(const std::string& text) {
  return ParsePem<PrivateKey>(text, "a private key without a password", PEM_read_bio_PrivateKey);
}

std::string TextOf(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return {bytes, static_cast<size_t>(size)};
}

absl::StatusOr<KeyPair> ToPem(const Certificate& certificate, const PrivateKey& key) {
  const MemoryBio shown(BIO_new(BIO_s_mem())), secret(BIO_new(BIO_s_mem()));
  if (shown == nullptr || secret == nullptr || PEM_write_bio_X509(shown.get(), certificate.get()) != 1 ||
      PEM_write_bio_PrivateKey(secret.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return CannotMake("write it as PEM");
  return KeyPair{TextOf(shown.get()), TextOf(secret.get())};
}

absl::Status AddExtension(X509* issuer, X509* certificate, int what, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const CertificateExtension extension(X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str()));
  if (extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1) return absl::OkStatus();
  return CannotMake(OBJ_nid2sn(what));
}

absl::Status SetSerial(X509* certificate) {
  const BigNumber number(BN_new());
  if (number != nullptr && BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
      BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr)
    return absl::OkStatus();
  return CannotMake("a serial number");
}

// A certificate that is not signed yet. Its name is for people: what counts is its subjectAltName.
absl::StatusOr<Certificate> BeginCertificate(const std::string& name, EVP_PKEY* key,
                                             const Validity& validity) {
  Certificate certificate(X509_new());
  if (certificate == nullptr || X509_set_version(certificate.get(), kVersion3) != 1)
    return CannotMake("begin");
  RETURN_IF_ERROR(SetSerial(certificate.get()));
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  const auto* bytes = reinterpret_cast<const unsigned char*>(name.data());
  const bool done =
      X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>("Lunkeeper"), -1, -1, 0) == 1 &&
      // A common name has at most 64 characters; a longer host stands in the subjectAltName alone.
      (name.size() > ub_common_name ||
       X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, bytes, static_cast<int>(name.size()), -1,
                                  0) == 1) &&
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(validity.from)) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(validity.until)) != nullptr &&
      X509_set_pubkey(certificate.get(), key) == 1;
  if (!done) return CannotMake("its name, times and key");
  return certificate;
}

absl::Status SignCertificate(X509* certificate, X509* issuer, EVP_PKEY* key) {
  if (X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
      X509_sign(certificate, key, EVP_sha256()) > 0)
    return absl::OkStatus();
  return CannotMake("sign it");
}

absl::StatusOr<PrivateKey> MakeKey() {
  PrivateKey key(EVP_EC_gen("P-256"));
  if (key == nullptr) return CannotMake("a key");
  return key;
}

absl::StatusOr<absl::Time> ToTime(const ASN1_TIME* time) {
  std::tm fields = {};
  if (ASN1_TIME_to_tm(time, &fields) != 1)
    return NotUsable("the certificate does not say from when to when it is good");
  return absl::FromTM(fields, absl::UTCTimeZone());
}

}  // namespace

absl::StatusOr<KeyPair> MakeAuthority(const std::string& name, const Validity& validity) {
  ASSIGN_OR_RETURN(const PrivateKey key, MakeKey());
  ASSIGN_OR_RETURN(const Certificate certificate, BeginCertificate(name, key.get(), validity));
  X509* self = certificate.get();
  // pathlen:0: it may sign servers and no further authorities (RFC 5280, section 4.2.1.9).
  RETURN_IF_ERROR(AddExtension(self, self, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  RETURN_IF_ERROR(AddExtension(self, self, NID_key_usage, "critical,keyCertSign,cRLSign"));
  RETURN_IF_ERROR(AddExtension(self, self, NID_subject_key_identifier, "hash"));
  RETURN_IF_ERROR(SignCertificate(self, self, key.get()));
  return ToPem(certificate, key);
}

absl::StatusOr<KeyPair> IssueCertificate(const KeyPair& authority, CertificateUse use,
                                         const std::string& name, const Validity& validity) {
  ASSIGN_OR_RETURN(const Certificate issuer, ParseCertificate(authority.certificate));
  ASSIGN_OR_RETURN(const PrivateKey issuer_key, ParseKey(authority.key));
  ASSIGN_OR_RETURN(const PrivateKey key, MakeKey());
  ASSIGN_OR_RETURN(const Certificate certificate, BeginCertificate(name, key.get(), validity));
  X509* own = certificate.get();
  const char* purpose = use == CertificateUse::kServer ? "serverAuth" : "clientAuth";
  RETURN_IF_ERROR(AddExtension(issuer.get(), own, NID_basic_constraints, "critical,CA:FALSE"));
  RETURN_IF_ERROR(AddExtension(issuer.get(), own, NID_key_usage, "critical,digitalSignature"));
  RETURN_IF_ERROR(AddExtension(issuer.get(), own, NID_ext_key_usage, purpose));
  RETURN_IF_ERROR(AddExtension(issuer.get(), own, NID_subject_key_identifier, "hash"));
  RETURN_IF_ERROR(AddExtension(issuer.get(), own, NID_authority_key_identifier, "keyid:always"));
  RETURN_IF_ERROR(AddExtension(issuer.get(), own, NID_subject_alt_name, absl::StrCat("DNS:", name)));
  RETURN_IF_ERROR(SignCertificate(own, issuer.get(), issuer_key.get()));
  return ToPem(certificate, key);
}

absl::StatusOr<Validity> ValidityOf(const std::string& certificate) {
  ASSIGN_OR_RETURN(const Certificate parsed, ParseCertificate(certificate));
  Validity validity;
  ASSIGN_OR_RETURN(validity.from, ToTime(X509_get0_notBefore(parsed.get())));
  ASSIGN_OR_RETURN(validity.until, ToTime(X509_get0_notAfter(parsed.get())));
  return validity;
}

absl::StatusOr<bool> IsForName(const std::string& certificate, const std::string& name) {
  ASSIGN_OR_RETURN(const Certificate parsed, ParseCertificate(certificate));
  return X509_check_host(parsed.get(), name.data(), name.size(), 0, nullptr) == 1;
}

absl::Status CheckKeyPair(const KeyPair& pair) {
  ASSIGN_OR_RETURN(const Certificate certificate, ParseCertificate(pair.certificate));
  ASSIGN_OR_RETURN(const PrivateKey key, ParseKey(pair.key));
  if (X509_check_private_key(certificate.get(), key.get()) == 1) return absl::OkStatus();
  return NotUsable("the key is not the certificate's");
}

// No chain is built: an authority of ours signs certificates and no further authorities.
absl::Status CheckIssued(const KeyPair& pair, const std::string& authority, CertificateUse use,
                         const std::string& name) {
  RETURN_IF_ERROR(CheckKeyPair(pair));
  ASSIGN_OR_RETURN(const Certificate certificate, ParseCertificate(pair.certificate));
  ASSIGN_OR_RETURN(const Certificate issuer, ParseCertificate(authority));
  if (X509_verify(certificate.get(), X509_get0_pubkey(issuer.get())) != 1)
    return NotUsable("another authority has signed the certificate");
  const int purpose = use == CertificateUse::kServer ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT;
  if (X509_check_purpose(certificate.get(), purpose, 0) != 1)
    return NotUsable("the certificate is for the other side of TLS");
  if (X509_check_host(certificate.get(), name.data(), name.size(), 0, nullptr) != 1)
    return NotUsable(absl::StrCat("the certificate is not for ", name));
  return absl::OkStatus();
}

}  // namespace lunkeeper
