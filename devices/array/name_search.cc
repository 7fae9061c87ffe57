#include "devices/array/name_search.h"

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

const char* WordFor(NamedKind kind) {
  switch (kind) {
    case NamedKind::kVolume:
      return "volume";
    case NamedKind::kSnapshot:
      return "snapshot";
    case NamedKind::kSnapshotGroup:
      return "snapshot group";
  }
  return "object";
}

// What each of them answers, in their order.
std::vector<absl::StatusOr<std::string>> AskAll(const std::vector<NamedArray>& arrays, NamedKind kind,
                                                const std::string& name) {
  std::vector<absl::StatusOr<std::string>> answers(arrays.size(), std::string());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < arrays.size(); ++i)
    threads.emplace_back([&, i] { answers[i] = arrays[i].array->names().FindNamed(kind, name); });
  threads.clear();
  return answers;
}

}  // namespace

absl::StatusOr<std::string> FindNamed(Arrays& arrays, const std::string& first, NamedKind kind,
                                      const std::string& name) {
  const std::vector<NamedArray> all = arrays.ListArrays();
  if (all.size() == 1) return std::string();
  const std::vector<absl::StatusOr<std::string>> answers = AskAll(all, kind, name);
  std::string found;
  for (size_t i = 0; i < all.size(); ++i) {
    const absl::Status& status = answers[i].status();
    if (absl::IsAborted(status)) return status;
    if (!status.ok()) {
      LogWarn("array", "an array cannot be asked for a name, and the call goes on without it",
              {{"array", all[i].name}, {WordFor(kind), name}, {"error", std::string(status.message())}});
      continue;
    }
    if (found.empty() || (all[i].name == first && !answers[i]->empty())) found = *answers[i];
  }
  return found;
}

absl::Status CheckNotElsewhere(Arrays& arrays, const std::string& array, NamedKind kind,
                               const std::string& name) {
  ASSIGN_OR_RETURN(const std::string there, FindNamed(arrays, array, kind, name));
  if (there.empty() || ArrayNameIn(there) == array) return absl::OkStatus();
  return IsElsewhere(kind, name, there, array);
}

absl::Status IsElsewhere(NamedKind kind, const std::string& name, const std::string& id,
                         const std::string& array) {
  return absl::AlreadyExistsError(
      absl::StrCat(WordFor(kind), " ", name, ": ", id, " has that name, on array ", ArrayNameIn(id),
                   ", and this call is for array ", array, ": use another name, or delete that one"));
}

}  // namespace lunkeeper
