// Both checks come before any work. What a client refuses to believe afterwards has been done all the same.
#include "devices/array/remote/meant.h"

#include "absl/strings/str_cat.h"
#include "devices/array/remote/wire.h"

namespace lunkeeper {
namespace {

// Empty: it has none of this name.
std::string MetadataOf(const grpc::ServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  return found == context.client_metadata().end() ? ""
                                                  : std::string(found->second.data(), found->second.size());
}

}  // namespace

absl::Status CheckArrayMeant(const grpc::ServerContext& context, const std::string& array) {
  const std::string meant = MetadataOf(context, wire::kArrayKey);
  if (meant == array) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("this is array ", array, ", and the call is for ",
                                                    meant.empty() ? "no array" : meant,
                                                    ": correct the array's name or address"));
}

std::optional<PoolIdentity> ReadCopyMeant(const grpc::ServerContext& context) {
  return ReadPoolIdentity(MetadataOf(context, wire::kPoolKey));
}

absl::Status CheckCopyMeant(const grpc::ServerContext& context, const std::string& array,
                            const PoolIdentity& served) {
  const auto known = ReadCopyMeant(context);
  // Another array's pool is another one in any case; the name says it better.
  if (!known || !CheckArrayMeant(context, array).ok()) return absl::OkStatus();
  return CheckCopy(served, *known);
}

}  // namespace lunkeeper
