// `lunkeeper-fake`: the real server and services over an array, an initiator, file systems and mounts in
// memory. Needs no root and no iSCSI, so that csi-sanity can run over it in seconds. Nothing it says is
// stored is.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/testing/test_host.h"
#include "devices/array/testing/fake_array.h"
#include "devices/datapath/testing/fake_initiator.h"
#include "devices/filesystem/testing/fake_filesystem.h"
#include "devices/filesystem/testing/fake_mounter.h"
#include "node/array_grant_source.h"
#include "node/stored_node_id.h"
#include "plugin/options.h"
#include "plugin/serve.h"

namespace lunkeeper {
namespace {

absl::StatusOr<Backends> OpenFakes(const ServeOptions& options) {
  Backends backends;
  auto array = std::make_shared<FakeArray>(FakeArrayOptions{.name = options.array_names.front()});
  backends.array_serving = [fake = array.get()] { return fake->GetCapacity().status(); };
  backends.accept_restore = [] { return absl::OkStatus(); };
  ASSIGN_OR_RETURN(backends.node, LoadNodeId(options.node_name, options.state_dir));
  auto mounter = std::make_unique<FakeMounter>();
  auto initiator = std::make_shared<FakeInitiator>(
      options.state_dir + "/devices",
      [fake = mounter.get()](const std::string& path) { return fake->IsMounted(path); });
  initiator->SetLunSize([fake = array.get()](const VolumeId& id) -> absl::StatusOr<uint64_t> {
    ASSIGN_OR_RETURN(const Volume volume, fake->GetVolume(id));
    return volume.spec.size_bytes;
  });
  backends.arrays = MakeOneArray(options.array_names.front(), array);
  backends.grants = MakeArrayGrantSource(*array, backends.node);
  backends.all_grants = std::move(array);
  backends.devices_serving = [] { return absl::OkStatus(); };
  backends.prober = initiator;
  backends.initiator = std::move(initiator);
  backends.filesystem = std::make_unique<FakeFilesystem>();
  backends.mounter = std::move(mounter);
  return backends;
}

}  // namespace
}  // namespace lunkeeper

int main(int argc, char** argv) {
  CLI::App app("Lunkeeper's services over fakes, for tests");
  lunkeeper::ServeOptions options;
  options.mode = "all";
  options.node_name = "fake";
  AddServerOptions(&app, &options);
  CLI11_PARSE(app, argc, argv);
  const lunkeeper::testing::TempDir state(std::filesystem::temp_directory_path());
  options.state_dir = state.path();
  return lunkeeper::Serve(options, [&] { return lunkeeper::OpenFakes(options); });
}
