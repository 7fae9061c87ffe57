#pragma once
// The arrays of a controller, from a file:
//
//   {"arrays": [
//     {"name": "rack1", "address": "10.0.0.5:7480", "serverName": "storage1",
//      "cert": "/etc/lunkeeper/tls/rack1/tls.crt", "key": "/etc/…/tls.key", "ca": "/etc/…/ca.crt",
//      "default": true}
//   ]}
//
// `address` is a text, or a list of texts where the array has several agents, of which one serves it at a
// time. `serverName` is the name in the agents' certificates, if it is not the address's host. At most one is
// the `default`, for volumes whose StorageClass names no array. The file is read again every second. A change
// takes effect at once; arrays that did not change keep their connections. A file with an error is refused,
// and the arrays stay as they were: the log names the line, and lunkeeper_arrays_file_good is 0.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/arrays.h"
#include "devices/array/gateway_state.h"
#include "devices/array/remote/remote_array.h"

namespace lunkeeper {

struct ArrayEntry {
  RemoteArrayOptions remote;
  bool is_default = false;
  size_t line = 0;  // where it ends
};

// At least one, in order of name. INVALID_ARGUMENT: "line 7: …". A pure function.
absl::StatusOr<std::vector<ArrayEntry>> ParseArrays(const std::string& text);

// Thread-safe. Has a thread of its own that reads the file.
class ArraysFile : public Arrays {
 public:
  // OK when at least one of the arrays serves; else the reason of the last one. Takes a second for each array
  // that hangs.
  virtual absl::Status CheckServing() = 0;
  // Of each array that has gateways, which one serves it; of one that does not answer, epoch 0. Takes a
  // second for each that hangs.
  virtual std::vector<ArrayGateway> AskGateways() = 0;
  // Whether the file as it is now is in force.
  virtual bool IsInForce() const = 0;
  // The files of the certificates that it names.
  virtual std::vector<std::string> ListCertificates() const = 0;
  // Reads the file now. OK, or what is wrong with it.
  virtual absl::Status Reload() = 0;
};

// INVALID_ARGUMENT or FAILED_PRECONDITION: the file is wrong or missing. An array whose TLS files are is
// away.
absl::StatusOr<std::unique_ptr<ArraysFile>> OpenArraysFile(const std::string& path);

}  // namespace lunkeeper
