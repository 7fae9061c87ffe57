#include "plugin/store_options.h"

#include <string>

#include "plugin/option_checks.h"

namespace lunkeeper {
namespace {

// Characters that mean something else in librados' pool names, in tgtd's parameters, or in image names.
std::string IsStore(const std::string& value) {
  const bool rbd = value.starts_with("rbd:") && value != "rbd:" && value.find_first_of(",;/@") > value.size();
  return rbd || value == "files" ? "" : value + ": want files or rbd:POOL";
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

}  // namespace lunkeeper
