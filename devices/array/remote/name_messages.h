#pragma once
// FindNamed as messages; as wire.h says.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/array/name_index.h"
#include "devices/array/remote/array.pb.h"

namespace lunkeeper::wire {

inline array::v1::NamedKind ToMessage(NamedKind kind) {
  if (kind == NamedKind::kVolume) return array::v1::NAMED_KIND_VOLUME;
  if (kind == NamedKind::kSnapshot) return array::v1::NAMED_KIND_SNAPSHOT;
  return array::v1::NAMED_KIND_SNAPSHOT_GROUP;
}

inline absl::StatusOr<NamedKind> FromMessage(array::v1::NamedKind kind) {
  for (const NamedKind known : {NamedKind::kVolume, NamedKind::kSnapshot, NamedKind::kSnapshotGroup})
    if (ToMessage(known) == kind) return known;
  return absl::InvalidArgumentError(absl::StrCat("a kind of names, ", static_cast<int>(kind),
                                                 ", is not known here: upgrade the array's agent"));
}

inline array::v1::FindNamedRequest ToMessage(NamedKind kind, const std::string& name) {
  array::v1::FindNamedRequest request;
  request.set_kind(ToMessage(kind));
  request.set_name(name);
  return request;
}

inline absl::Status AnswerNamed(NameIndex& names, const array::v1::FindNamedRequest& request,
                                array::v1::FindNamedResponse* response) {
  ASSIGN_OR_RETURN(const NamedKind kind, FromMessage(request.kind()));
  ASSIGN_OR_RETURN(*response->mutable_id(), names.FindNamed(kind, request.name()));
  return absl::OkStatus();
}

}  // namespace lunkeeper::wire
