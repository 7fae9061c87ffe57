#pragma once
// A server with the Admin service on a socket over arrays in memory, and `lunkeeper …` against it.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "devices/array/testing/fake_array.h"
#include "plugin/admin_client.h"
#include "plugin/admin_service.h"
#include "plugin/server.h"

namespace lunkeeper {

inline const NodeId kNode("a.00000000000000aa");

// Files that were set aside. Thread-safe.
class OrphanFolder {
 public:
  explicit OrphanFolder(std::vector<OrphanFile> files) : files_(std::move(files)) {}
  std::vector<OrphanFile> ListFiles() {
    const absl::MutexLock lock(&mutex_);
    return files_;
  }
  absl::Status DeleteLast(const std::string& name) {
    const absl::MutexLock lock(&mutex_);
    if (files_.back().name != name) return absl::NotFoundError(name);
    files_.pop_back();
    return absl::OkStatus();
  }

 private:
  absl::Mutex mutex_;
  std::vector<OrphanFile> files_;
};

inline Backends WithArray(FakeArray** array, std::shared_ptr<Arrays> arrays, OrphanFolder* folder = nullptr) {
  Backends backends;
  auto made = std::make_shared<FakeArray>(FakeArrayOptions{.name = "a1"});
  *array = made.get();
  backends.arrays = arrays != nullptr ? std::move(arrays) : MakeOneArray("a1", made);
  backends.array_serving = [fake = made.get()] { return fake->GetCapacity().status(); };
  backends.accept_restore = [] { return absl::OkStatus(); };
  backends.all_grants = std::move(made);
  if (folder == nullptr) return backends;
  backends.list_orphans = [folder] { return folder->ListFiles(); };
  backends.delete_orphan = [folder](const std::string& name) { return folder->DeleteLast(name); };
  return backends;
}

inline VolumeId Granted(FakeArray& array, const std::string& name, const NodeId& node = kNode) {
  VolumeSpec spec;
  spec.name = name;
  spec.size_bytes = 1 << 20;
  const VolumeId volume = array.CreateVolume(spec)->id;
  REQUIRE(array.AcquireGrant({volume, node}, absl::ZeroDuration()).ok());
  return volume;
}

inline Backends Prepared(Backends backends, const std::function<void(Backends&)>& prepare) {
  prepare(backends);
  return backends;
}

// A server with the Admin service on a socket, and `lunkeeper …` against it.
struct Shell {
  // With these arrays instead of the one.
  explicit Shell(std::shared_ptr<Arrays> arrays = nullptr) : backends(WithArray(&array, std::move(arrays))) {}
  // With these files set aside. All of it is there before the server's threads are.
  explicit Shell(OrphanFolder* folder) : backends(WithArray(&array, nullptr, folder)) {}

  // With what `prepare` changes.
  explicit Shell(const std::function<void(Backends&)>& prepare)
      : backends(Prepared(WithArray(&array, nullptr), prepare)) {}

  MakeClient cluster = InClusterClient;
  FakeArray* array = nullptr;
  Backends backends;
  std::unique_ptr<admin::v1::Admin::Service> service = MakeAdminService(&backends, "all");
  Metrics metrics{"all"};
  std::string path =
      (std::filesystem::temp_directory_path() / ("lk-admin-" + std::to_string(::getpid()) + ".sock"))
          .string();
  std::unique_ptr<Server> server = Server::Start({.endpoint = path}, {service.get()}, &metrics).value();

  struct Output {
    std::string out, errors;
    int exit_code = -1;
  };
  Output RunFully(std::vector<std::string> arguments) {
    CLI::App app;
    Output told;
    AddAdminCommands(&app, &told.exit_code, cluster);
    if (arguments.front() != "allow")  // it asks the cluster alone
      arguments.insert(arguments.end(), {"--endpoint", "unix://" + path});
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    const Captured out(std::cout), errors(std::cerr);
    app.parse(arguments);
    told.out = out.text();
    told.errors = errors.text();
    return told;
  }
  // What it prints on standard output, or after "error: " on standard error.
  std::string Run(std::vector<std::string> arguments) {
    const Output told = RunFully(std::move(arguments));
    CHECK(told.exit_code == (told.errors.empty() ? 0 : 1));
    return told.errors.empty() ? told.out : "error: " + told.errors;
  }

 private:
  // What is written to a stream, also if the writer throws.
  class Captured {
   public:
    explicit Captured(std::ostream& stream) : stream_(stream), before_(stream.rdbuf(text_.rdbuf())) {}
    ~Captured() { stream_.rdbuf(before_); }
    std::string text() const { return text_.str(); }

   private:
    std::ostringstream text_;
    std::ostream& stream_;
    std::streambuf* const before_;
  };
};

}  // namespace lunkeeper
