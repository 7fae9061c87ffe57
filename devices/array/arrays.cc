// Ids name their array: <array>-v and 16 hex digits are a volume, -s a snapshot, -g a group of snapshots. So
// no table of volumes is kept outside the arrays, and a controller that starts needs nothing but its list of
// arrays to find any volume.
#include "devices/array/arrays.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr size_t kDigits = 16;  // of an id, after `-v`, `-s` or `-g`

// For a process that has its array built in.
class OneArray final : public Arrays {
 public:
  explicit OneArray(NamedArray array) : array_(std::move(array)) {}
  std::vector<NamedArray> ListArrays() override { return {array_}; }

 private:
  const NamedArray array_;
};

}  // namespace

std::unique_ptr<Arrays> MakeOneArray(std::string name, std::shared_ptr<Array> array) {
  // The default, for requests that name no array.
  return std::make_unique<OneArray>(NamedArray{std::move(name), std::move(array), true});
}

std::shared_ptr<Array> FindArray(Arrays& arrays, const std::string& name) {
  for (NamedArray& each : arrays.ListArrays())
    if (each.name == name) return std::move(each.array);
  return nullptr;
}

// Read from the end, since an array's name may itself contain "-v" or "-s".
std::string ArrayNameIn(const std::string& id) {
  // At least one character of the array's name, the hyphen and the letter.
  if (id.size() < kDigits + 3) return "";
  const size_t mark = id.size() - kDigits - 2;
  const auto is_digit = [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
  };
  const char kind = id[mark + 1];
  const bool ours = id[mark] == '-' && (kind == 'v' || kind == 's' || kind == 'g') &&
                    std::all_of(id.begin() + static_cast<ptrdiff_t>(mark) + 2, id.end(), is_digit);
  return ours ? id.substr(0, mark) : "";
}

// An array that is not configured here is another matter than a volume that does not exist: "not found" would
// let an orchestrator forget a volume whose data are still there.
absl::StatusOr<std::shared_ptr<Array>> FindArrayOf(Arrays& arrays, const std::string& id) {
  const std::string name = ArrayNameIn(id);
  if (name.empty())
    return absl::NotFoundError(absl::StrCat(id, ": there is no such volume, snapshot or group"));
  RETURN_IF_ERROR(arrays.CheckKnown());
  if (auto array = FindArray(arrays, name)) return array;
  if (arrays.IsRemoved(name))
    return absl::FailedPreconditionError(absl::StrCat(
        id, " is on array ", name, ", which was removed: `lunkeeper add-array ", name, "` brings it back"));
  const std::string others = absl::StrJoin(
      arrays.ListArrays(), ", ", [](std::string* out, const NamedArray& each) { out->append(each.name); });
  return absl::FailedPreconditionError(absl::StrCat(id, " is on array ", name, ", and only ", others,
                                                    " can be asked here: add that one to the arrays file"));
}

}  // namespace lunkeeper
