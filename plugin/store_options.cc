#include "plugin/store_options.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "plugin/option_checks.h"

namespace lunkeeper {
namespace {

// Characters that mean something else in librados' pool names, in tgtd's parameters, or in image names.
std::string IsStore(const std::string& value) {
  const bool rbd = value.starts_with("rbd:") && value != "rbd:" && value.find_first_of(",;/@") > value.size();
  return rbd || value == "files" ? "" : value + ": want files or rbd:POOL";
}

// CLI11 says what is wrong with a size in words that name neither the option nor the text.
std::optional<uint64_t> ReadSize(std::string text) {
  // Also as it is read: a text without a number throws nothing by itself.
  if (text.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(text.front()))) return std::nullopt;
  uint64_t bytes = 0;
  try {
    if (!CLI::AsSizeValue(/*kb_is_1000=*/false)(text).empty() || !absl::SimpleAtoi(text, &bytes))
      return std::nullopt;
  } catch (const CLI::ParseError&) {
    return std::nullopt;
  }
  return bytes;
}

// CLUSTER=SIZE or SIZE. Empty: it is in `quotas`; else what is wrong.
std::string SetQuota(const std::string& text, ClusterQuotas* quotas) {
  const size_t equals = text.find('=');
  const std::string cluster = text.substr(0, equals == std::string::npos ? 0 : equals);
  const std::string size = text.substr(equals == std::string::npos ? 0 : equals + 1);
  const std::optional<uint64_t> bytes = ReadSize(size);
  if (!bytes) return absl::StrCat("\"", size, "\": want a size without a fraction, such as 500GiB");
  if (equals == std::string::npos) {
    quotas->others = *bytes;
    return "";
  }
  if (std::string name = PlainName(63)(cluster); !name.empty()) return name;
  quotas->named[ClusterId(cluster)] = *bytes;
  return "";
}

void SetQuotas(const std::vector<std::string>& texts, ClusterQuotas* quotas) {
  for (const std::string& text : texts)
    if (const std::string wrong = SetQuota(text, quotas); !wrong.empty())
      throw CLI::ValidationError("--quota", wrong);
}

}  // namespace

void AddStoreOptions(CLI::App* command, CephOptions* ceph) {
  command
      ->add_option_function<std::string>(
          "--store",
          [ceph](const std::string& store) { ceph->pool = store == "files" ? "" : store.substr(4); },
          "files: volumes are files in --pool; rbd:POOL: RBD images in this pool of Ceph, and --pool is "
          "this host's own folder. One agent serves an array at a time")
      ->check(IsStore)
      ->default_str("files");
  command->add_option("--ceph-conf", ceph->conf, "With rbd: the cluster's conf")
      ->check(IsAbsolutePath)
      ->capture_default_str();
  command->add_option("--ceph-user", ceph->user, "With rbd: the user, without `client.`")
      ->capture_default_str();
}

void AddLimitOptions(CLI::App* command, PoolLimits* limits) {
  command
      ->add_option("--overcommit", limits->overcommit,
                   "How many times the pool's size volumes and snapshots may have together; 0: no limit")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  command
      ->add_option("--keep-free", limits->keep_free_percent,
                   "Percent of the pool that new volumes, growth and snapshots leave free")
      ->check(CLI::Range(0, 90))
      ->capture_default_str();
  command
      ->add_option_function<std::vector<std::string>>(
          "--quota", [limits](const std::vector<std::string>& texts) { SetQuotas(texts, &limits->quotas); },
          "CLUSTER=SIZE, such as prod=2TiB: how large the volumes and snapshots of that cluster may be "
          "together; or SIZE, for each cluster that is not named. May be repeated; 0: no limit")
      ->allow_extra_args(false);
}

}  // namespace lunkeeper
