#pragma once
// OpenSSL's objects, each owned by one handle that frees it. Not thread-safe, as OpenSSL's objects are not.

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>

namespace lunkeeper {

template <class T, auto Free>
struct OpenSslFreer {
  void operator()(T* object) const { Free(object); }
};
template <class T, auto Free>
using OpenSslHandle = std::unique_ptr<T, OpenSslFreer<T, Free>>;

using Certificate = OpenSslHandle<X509, X509_free>;
using CertificateExtension = OpenSslHandle<X509_EXTENSION, X509_EXTENSION_free>;
using PrivateKey = OpenSslHandle<EVP_PKEY, EVP_PKEY_free>;
using MemoryBio = OpenSslHandle<BIO, BIO_vfree>;
using BigNumber = OpenSslHandle<BIGNUM, BN_free>;

// A key with a password must not make OpenSSL ask for it at a terminal: a callback that gives none.
inline int NoPassword(char*, int, int, void*) { return 0; }

}  // namespace lunkeeper
